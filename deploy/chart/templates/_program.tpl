{{- /* (value's name, program's option) of every file from a Secret, in the order of the words */ -}}
{{- define "fleet.secrets" -}}
gitToken: git-token
sshKey: ssh-key
knownHosts: known-hosts
ca: ca
agentToken: agent-token
agentCert: agent-cert
agentKey: agent-key
webhookSecret: webhook-secret
{{- end -}}

{{- define "fleet.namespace" -}}
{{- if ne .Release.Namespace "fleet-reconciler" -}}
{{- fail "install this into namespace fleet-reconciler: helm install -n fleet-reconciler --create-namespace (its Lease and its inventory are found there by name)" -}}
{{- end -}}
{{- end -}}

{{- define "fleet.image" -}}
{{- .Values.image | default (printf "image-of-your-own.invalid/fleet-reconciler:%s" .Chart.AppVersion) | quote -}}
{{- end -}}
