"""The model runner: persistent rows, inputs made from them on the device, one step at a time."""
