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
pageToken: page-token
{{- end -}}

{{- define "fleet.namespace" -}}
{{- if ne .Release.Namespace "fleet-reconciler" -}}
{{- fail "install this into namespace fleet-reconciler: helm install -n fleet-reconciler --create-namespace (its Lease and its inventory are found there by name)" -}}
{{- end -}}
{{- end -}}

{{- define "fleet.image" -}}
{{- .Values.image | default (printf "image-of-your-own.invalid/fleet-reconciler:%s" .Chart.AppVersion) | quote -}}
{{- end -}}

{{- /* A decimal, which `--set` hands on as text: (list PATH VALUE MOST) */ -}}
{{- define "fleet.decimal" -}}
{{- $path := index . 0 }}{{ $text := toString (index . 1) }}{{ $most := index . 2 -}}
{{- $is := or (not (kindIs "string" (index . 1))) (regexMatch "^([0-9]{1,9}([.][0-9]{0,9})?|[.][0-9]{1,9})$" $text) -}}
{{- if not $is -}}
{{- fail (printf "%s: %q is not a number: write one from 0 to %v, such as 0.7" $path $text $most) -}}
{{- end -}}
{{- if gt (float64 $text) (float64 $most) -}}
{{- fail (printf "%s: %s is too large: write a number from 0 to %v, such as 0.7" $path $text $most) -}}
{{- end -}}
{{- $text -}}
{{- end -}}
