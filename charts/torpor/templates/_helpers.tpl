{{/* Name of everything that belongs to one release: the release's name, with torpor in it. */}}
{{- define "torpor.fullname" -}}
{{- if contains "torpor" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-torpor" (.Release.Name | trunc 43 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* Names of objects without a namespace carry the release's namespace too. */}}
{{- define "torpor.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "torpor.fullname" .) -}}
{{- end -}}

{{/* What a selector matches by: never changes during the life of a release. The policies of engine pods
     let in pods of this name, in this namespace, to the admin port. */}}
{{- define "torpor.selectorLabels" -}}
app.kubernetes.io/name: torpor-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "torpor.labels" -}}
{{ include "torpor.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Reference of an image: of (dict "image" .Values.image "version" .Chart.AppVersion). */}}
{{- define "torpor.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .version) -}}
{{- end -}}
{{- end -}}

{{- define "torpor.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "torpor.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "torpor.masterKeySecret" -}}
{{- .Values.masterKey.existingSecret | default (printf "%s-master-key" (include "torpor.fullname" .)) -}}
{{- end -}}

{{/* The restricted profile of pod security, for the pod and for its container. */}}
{{- define "torpor.podSecurity" -}}
runAsNonRoot: true
{{- if .Values.runAsUser }}
runAsUser: {{ int64 .Values.runAsUser }}
runAsGroup: {{ int64 .Values.runAsUser }}
fsGroup: {{ int64 .Values.runAsUser }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "torpor.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What the operator does in a namespace that it serves. Used by the ClusterRole, or by one Role
     for each of watchNamespaces. */}}
{{- define "torpor.rules" -}}
- apiGroups: [torpor.dev]
  resources: [inferencedeployments]
  verbs: [get, list, watch]
- apiGroups: [torpor.dev]
  resources: [inferencedeployments/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
# No get and no list: the keys are derived anew each time. (A patch does answer with the one Secret
# that it names; RBAC cannot say "only names that end in -keys".)
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, patch]
- apiGroups: [""]
  # list: that a volume cannot be mounted is told by events of the pod only.
  resources: [events]
  verbs: [list, create]
{{- end -}}
