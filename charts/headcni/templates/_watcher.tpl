{{/* Who may look at one DaemonSet, and do nothing else. Takes root, name, hook and daemonSet. */}}
{{- define "headcni.watcher" -}}
{{- range $kind := list "ServiceAccount" "Role" "RoleBinding" }}
---
apiVersion: {{ ternary "v1" "rbac.authorization.k8s.io/v1" (eq $kind "ServiceAccount") }}
kind: {{ $kind }}
metadata:
  name: {{ $.name }}
  namespace: {{ $.root.Values.namespace }}
  labels:
    {{- include "headcni.labels" $.root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ $.hook }}
    helm.sh/hook-weight: "-10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- if eq $kind "Role" }}
rules:
  - apiGroups: [apps]
    resources: [daemonsets]
    resourceNames: [{{ $.daemonSet }}]
    verbs: [get]
{{- else if eq $kind "RoleBinding" }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $.name }}}
subjects:
  - {kind: ServiceAccount, name: {{ $.name }}, namespace: {{ $.root.Values.namespace }}}
{{- end }}
{{- end }}
{{- end }}
