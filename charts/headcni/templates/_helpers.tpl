{{/* Names and labels. The DaemonSet is always headcni-daemon, whatever the release is called. */}}
{{- define "headcni.selectorLabels" -}}
app.kubernetes.io/name: headcni
app.kubernetes.io/component: daemon
{{- end }}

{{- define "headcni.labels" -}}
app.kubernetes.io/name: headcni
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "headcni.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The Secret with the mesh's keys, and which of them it has; both empty if there is none. */}}
{{- define "headcni.secretName" -}}
{{- if .Values.headscale.existingSecret -}}
{{ .Values.headscale.existingSecret }}
{{- else if .Values.headscale.createSecret.enabled -}}
headcni-headscale-keys
{{- end -}}
{{- end }}

{{- define "headcni.secretKeys" -}}
{{- $keys := list -}}
{{- if .Values.headscale.existingSecret -}}
{{- $keys = .Values.headscale.secretKeys -}}
{{- else if .Values.headscale.createSecret.enabled -}}
{{- if .Values.headscale.createSecret.apiKey }}{{ $keys = append $keys "api-key" }}{{ end -}}
{{- if .Values.headscale.createSecret.preAuthKey }}{{ $keys = append $keys "pre-auth-key" }}{{ end -}}
{{- end -}}
{{- toJson $keys -}}
{{- end }}

{{- define "headcni.url" -}}
{{- $said := dig "headscale" "url" "" .Values.config | default "" -}}
{{- if $said -}}
{{ $said }}
{{- else if .Values.headscale.inCluster.enabled -}}
http://{{ .Values.headscale.inCluster.address }}:{{ .Values.headscale.inCluster.port }}
{{- end -}}
{{- end }}

{{/* Whether tailscaled has a container of its own: "true" or nothing. */}}
{{- define "headcni.hasTailscaled" -}}
{{- $mode := dig "tailscale" "mode" "auto" .Values.config -}}
{{- $isOurs := or (has $mode (list "daemon" "container")) (and (eq $mode "auto") (include "headcni.url" .)) -}}
{{- $isApart := eq (dig "tailscale" "netns" "auto" .Values.config) "own" -}}
{{- if and .Values.tailscaled.ownContainer $isOurs (not $isApart) }}true{{ end -}}
{{- end }}

{{- define "headcni.stateDir" -}}
{{ dig "tailscale" "stateDir" "/var/lib/headcni/tailscale" .Values.config }}
{{- end }}

{{/* Directories of the nodes. A path that the configuration names wins. */}}
{{- define "headcni.confDir" -}}
{{- $usual := ternary "/var/lib/rancher/k3s/agent/etc/cni/net.d" "/etc/cni/net.d" (eq .Values.platform "k3s") -}}
{{ dig "cni" "confDir" $usual .Values.config | default $usual }}
{{- end }}

{{/* Where plugins are, as a volume. k3s has links in it that lead elsewhere below its data directory. */}}
{{- define "headcni.binVolume" -}}
{{- $usual := ternary "/var/lib/rancher/k3s/data" "/opt/cni/bin" (eq .Values.platform "k3s") -}}
{{ dig "cni" "binDir" $usual .Values.config | default $usual }}
{{- end }}

{{/* The port of /metrics, /healthz and /ready. */}}
{{- define "headcni.port" -}}
{{- if .Values.metrics.onNodeAddress -}}
{{ .Values.metrics.port }}
{{- else -}}
{{ dig "monitoring" "address" "127.0.0.1:9844" .Values.config | splitList ":" | last }}
{{- end -}}
{{- end }}

{{/* What a probe of /healthz or /ready asks. Without a host it is the node's own address. */}}
{{- define "headcni.probe" -}}
port: {{ include "headcni.port" . }}
{{- if not .Values.metrics.onNodeAddress }}
{{- $host := regexReplaceAll ":[0-9]+$" (dig "monitoring" "address" "127.0.0.1:9844" .Values.config) "" | trimAll "[]" }}
{{- if eq $host "0.0.0.0" }}{{ $host = "127.0.0.1" }}{{ else if eq $host "::" }}{{ $host = "::1" }}{{ end }}
host: {{ $host | quote }}
{{- end }}
{{- end }}

{{/* A pod on every node, whatever state that is in. */}}
{{- define "headcni.nodePod" -}}
{{ include "headcni.hostPod" . }}
tolerations:
  - operator: Exists
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A pod on any node that answers: one on a node that is lost would be waited for in vain. */}}
{{- define "headcni.jobPod" -}}
{{ include "headcni.hostPod" . }}
{{- with .Values.hooks.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A pod that runs on nodes that have no network yet, or no more. */}}
{{- define "headcni.hostPod" -}}
hostNetwork: true
# The node's own resolver: the cluster's needs the network that is to be made here.
dnsPolicy: Default
# Services whose names begin with headcnid would become variables that look like the daemon's own.
enableServiceLinks: false
priorityClassName: system-node-critical
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Variables of whoever reads the daemon's configuration. No value here is a secret: these are paths. */}}
{{- define "headcni.configEnv" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- if has "api-key" (include "headcni.secretKeys" . | fromJsonArray) }}
- name: HEADCNID_HEADSCALE_API_KEY_FILE
  value: /etc/headcni-keys/api-key
{{- end }}
{{- if has "pre-auth-key" (include "headcni.secretKeys" . | fromJsonArray) }}
- name: HEADCNID_HEADSCALE_PRE_AUTH_KEY_FILE
  value: /etc/headcni-keys/pre-auth-key
{{- end }}
{{- if .Values.headscale.caConfigMap }}
- name: HEADCNID_HEADSCALE_CA_FILE
  value: /etc/headcni-ca/ca.crt
{{- end }}
{{- if and .Values.headscale.inCluster.enabled (not (dig "headscale" "url" "" .Values.config)) }}
- name: HEADCNID_HEADSCALE_URL
  value: {{ include "headcni.url" . }}
{{- end }}
{{- if .Values.metrics.onNodeAddress }}
- name: NODE_IP
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
- name: HEADCNID_MONITORING_ADDRESS
  value: $(NODE_IP):{{ .Values.metrics.port }}
{{- end }}
{{- if .Values.apiServer.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.apiServer.port | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where the configuration and what it names are. */}}
{{- define "headcni.configMounts" -}}
- {name: config, mountPath: /etc/headcni, readOnly: true}
{{- if include "headcni.secretName" . }}
- {name: keys, mountPath: /etc/headcni-keys, readOnly: true}
{{- end }}
{{- if .Values.headscale.caConfigMap }}
- {name: ca, mountPath: /etc/headcni-ca, readOnly: true}
{{- end }}
{{- end }}

{{/* Takes root, configMap, of which hooks have a copy of their own, and whether keys may be missing: isOptional. */}}
{{- define "headcni.configVolumes" -}}
- name: config
  configMap: {name: {{ .configMap }}}
{{- if include "headcni.secretName" .root }}
- name: keys
  secret:
    secretName: {{ include "headcni.secretName" .root }}
    # 0400, in a form that every reader of YAML takes for the same number.
    defaultMode: 256
    {{- if .isOptional }}
    optional: true
    {{- end }}
    items:
      {{- range include "headcni.secretKeys" .root | fromJsonArray }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- if .root.Values.headscale.caConfigMap }}
- name: ca
  configMap:
    name: {{ .root.Values.headscale.caConfigMap }}
    {{- if .isOptional }}
    optional: true
    {{- end }}
{{- end }}
{{- end }}

{{/* What a container may do that writes into a node's directories, and no more. SELinux lets no other type. */}}
{{- define "headcni.fileSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL], add: [DAC_OVERRIDE]}
seLinuxOptions: {type: spc_t, level: s0}
{{- end }}

{{/* What of the node the daemon works with, under the same paths as on the node. */}}
{{- define "headcni.nodeMounts" -}}
{{- $isApart := eq (dig "tailscale" "netns" "auto" .Values.config) "own" -}}
- {name: run, mountPath: /run/headcni}
- {name: state, mountPath: /var/lib/headcni}
- {name: cni-data, mountPath: /var/lib/cni}
- {name: cni-conf, mountPath: {{ include "headcni.confDir" . }}}
- {name: cni-bin, mountPath: {{ include "headcni.binVolume" . }}}
- {name: xtables-lock, mountPath: /run/xtables.lock}
# Namespaces of pods are mounts, and have to arrive here; one of ours has to arrive on the node.
- {name: netns, mountPath: /run/netns, mountPropagation: {{ ternary "Bidirectional" "HostToContainer" $isApart }}}
# /run/tailscale of the image is a link into it: a host's tailscaled makes that directory anew at each start.
- {name: host-run, mountPath: /host/run, mountPropagation: HostToContainer, readOnly: true}
{{- with dig "ipam" "dataDir" "" .Values.config }}
{{- if not (hasPrefix "/var/lib/cni/" (printf "%s/" .)) }}
- {name: ipam-data, mountPath: {{ . }}}
{{- end }}
{{- end }}
{{- $stateDir := include "headcni.stateDir" . }}
{{- if not (hasPrefix "/var/lib/headcni/" $stateDir) }}
- {name: tailscale-state, mountPath: {{ $stateDir }}}
{{- end }}
{{- if .Values.unmanagedLinks.networkManager }}
- {name: network-manager, mountPath: /etc/NetworkManager/conf.d}
{{- end }}
{{- if .Values.unmanagedLinks.systemdNetworkd }}
- {name: networkd, mountPath: /etc/systemd/network}
- {name: networkd-conf, mountPath: /etc/systemd/networkd.conf.d}
- {name: networkd-program, mountPath: /usr/lib/systemd/systemd-networkd, readOnly: true}
- {name: networkd-links, mountPath: /run/systemd/netif/links, readOnly: true}
{{- end }}
{{- end }}

{{- define "headcni.nodeVolumes" -}}
- name: run
  hostPath: {path: /run/headcni, type: DirectoryOrCreate}
- name: state
  hostPath: {path: /var/lib/headcni, type: DirectoryOrCreate}
- name: cni-data
  hostPath: {path: /var/lib/cni, type: DirectoryOrCreate}
- name: cni-conf
  hostPath: {path: {{ include "headcni.confDir" . }}, type: DirectoryOrCreate}
- name: cni-bin
  hostPath: {path: {{ include "headcni.binVolume" . }}, type: DirectoryOrCreate}
- name: xtables-lock
  hostPath: {path: /run/xtables.lock, type: FileOrCreate}
- name: netns
  hostPath: {path: /run/netns, type: DirectoryOrCreate}
- name: host-run
  hostPath: {path: /run, type: Directory}
{{- with dig "ipam" "dataDir" "" .Values.config }}
{{- if not (hasPrefix "/var/lib/cni/" (printf "%s/" .)) }}
- name: ipam-data
  hostPath: {path: {{ . }}, type: DirectoryOrCreate}
{{- end }}
{{- end }}
{{- $stateDir := include "headcni.stateDir" . }}
{{- if not (hasPrefix "/var/lib/headcni/" $stateDir) }}
- name: tailscale-state
  hostPath: {path: {{ $stateDir }}, type: DirectoryOrCreate}
{{- end }}
{{- if .Values.unmanagedLinks.networkManager }}
- name: network-manager
  hostPath: {path: /etc/NetworkManager/conf.d, type: Directory}
{{- end }}
{{- if .Values.unmanagedLinks.systemdNetworkd }}
- name: networkd
  hostPath: {path: /etc/systemd/network, type: DirectoryOrCreate}
- name: networkd-conf
  hostPath: {path: /etc/systemd/networkd.conf.d, type: DirectoryOrCreate}
# That these are there tells the daemon whom to write to.
- name: networkd-program
  hostPath: {path: /usr/lib/systemd/systemd-networkd, type: File}
- name: networkd-links
  hostPath: {path: /run/systemd/netif/links, type: Directory}
{{- end }}
{{- end }}

{{/* What CoreDNS needs to know of the mesh's names. */}}
{{- define "headcni.stub" -}}
{{ include "headcni.domain" . }}:53 {
    errors
    cache 30
    forward . {{ join " " .Values.coredns.stub.servers }}
}
{{- end }}
