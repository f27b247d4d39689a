{{/* The drivers of FlexVolumes that the controller makes. */}}
{{- define "confinement.flexDrivers" -}}
{{- list "localvolume.dev/flexvolume" "volumes.k8s.elastic.co/elastic-local" | toYaml -}}
{{- end -}}

{{/* Whether FlexVolume is served, and so provisioned by the controller: "true" or "". */}}
{{- define "confinement.servesFlexVolume" -}}
{{- if or .Values.flexvolume .Values.replaces.elastic.driver }}true{{ end -}}
{{- end -}}
