{{/* Checks that values.schema.json can't express. */}}
{{- define "headcni.checks" -}}
{{- if and .Values.headscale.existingSecret .Values.headscale.createSecret.enabled }}
{{- fail "headscale.existingSecret and headscale.createSecret.enabled contradict each other: leave one of them out" }}
{{- end }}
{{- if and .Values.headscale.createSecret.enabled (not .Values.headscale.createSecret.apiKey) (not .Values.headscale.createSecret.preAuthKey) }}
{{- fail "headscale.createSecret has no key: set headscale.createSecret.apiKey or headscale.createSecret.preAuthKey" }}
{{- end }}
{{- if and .Values.headscale.inCluster.enabled (not .Values.headscale.inCluster.address) }}
{{- fail "headscale.inCluster.address is missing: name an address of headscale.inCluster.nodeName that all nodes reach" }}
{{- end }}
{{- if and .Values.headscale.inCluster.enabled (not .Values.headscale.inCluster.nodeName) }}
{{- fail "headscale.inCluster.nodeName is missing: its database stays on one node, so name that node" }}
{{- end }}
{{- range $key, $value := .Values.config.headscale }}
{{- if and (eq $key "apiKeyFile") $value (has "api-key" (include "headcni.secretKeys" $ | fromJsonArray)) }}
{{- fail "config.headscale.apiKeyFile and the Secret's api-key contradict each other: leave one of them out" }}
{{- end }}
{{- if and (eq $key "preAuthKeyFile") $value (has "pre-auth-key" (include "headcni.secretKeys" $ | fromJsonArray)) }}
{{- fail "config.headscale.preAuthKeyFile and the Secret's pre-auth-key contradict each other: leave one of them out" }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.onNodeAddress (dig "monitoring" "pprof" false .Values.config) }}
{{- fail "config.monitoring.pprof needs a loopback address: leave metrics.onNodeAddress out, or profiles" }}
{{- end }}
{{- if and (not .Values.metrics.onNodeAddress) (eq (include "headcni.port" .) "0") }}
{{- fail "config.monitoring.address has port 0, which probes can't find: name a port" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.onNodeAddress) (regexMatch "^(127\\.|\\[::1\\]|localhost)" (dig "monitoring" "address" "127.0.0.1:9844" .Values.config)) }}
{{- fail "metrics.serviceMonitor.enabled: Prometheus does not reach a loopback address: set metrics.onNodeAddress to true" }}
{{- end }}
{{- if lookup "apps/v1" "DaemonSet" .Values.namespace "headcni-uninstall" }}
{{- fail (printf "an earlier uninstallation is still at work and would remove the new installation: kubectl -n %s delete daemonset,job headcni-uninstall" .Values.namespace) }}
{{- end }}
{{- if and .Values.coredns.stub.enabled (not (include "headcni.domain" .)) }}
{{- fail "coredns.stub.domain is missing: name the mesh's domain, Headscale's dns.base_domain" }}
{{- end }}
{{- end }}

{{- define "headcni.domain" -}}
{{ .Values.coredns.stub.domain | default (dig "dns" "magicDNS" "baseDomain" "" .Values.config) }}
{{- end }}
