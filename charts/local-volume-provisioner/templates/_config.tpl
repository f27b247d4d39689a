{{/* The agent's ConfigMap: key by key what its documentation says; upstream's keys as upstream's. */}}
{{- define "provisioner.config.class" -}}
{{- $class := dict "hostDir" .hostDir "mountDir" (default .hostDir .mountDir) -}}
{{- range $key := list "volumeMode" "accessMode" "fsType" "namePattern" "selector" "firstUse" "cleaningConcurrency" "cleaningTimeout" -}}
{{- with index $ $key }}{{ $_ := set $class $key . }}{{ end -}}
{{- end -}}
{{- with .blockCleanerCommand -}}
{{- $words := list -}}
{{- range . }}{{ $words = append $words (toString .) }}{{ end -}}
{{- $_ := set $class "blockCleanerCommand" $words -}}
{{- end -}}
{{- toYaml $class -}}
{{- end -}}

{{/* Whether pods may have volumes of their own in a pool: "true" or "". */}}
{{- define "provisioner.servesInline" -}}
{{- $found := "" -}}
{{- range .Values.pools }}{{ if .inline }}{{ $found = "true" }}{{ end }}{{ end -}}
{{- $found -}}
{{- end -}}

{{- define "provisioner.config.data" -}}
{{- $data := dict -}}
{{- $classes := dict -}}
{{- range .Values.classes }}{{ $_ := set $classes .name (include "provisioner.config.class" . | fromYaml) }}{{ end -}}
{{- $_ := set $data "storageClassMap" (toYaml $classes) -}}
{{- with .Values.nodeLabels }}{{ $_ := set $data "nodeLabelsForPV" (toYaml .) }}{{ end -}}
{{- with .Values.labelsForPV }}{{ $_ := set $data "labelsForPV" (toYaml .) }}{{ end -}}
{{- with .Values.tolerations }}{{ $_ := set $data "jobTolerations" (toYaml .) }}{{ end -}}
{{- with .Values.jobResources }}{{ $_ := set $data "jobResources" (toYaml .) }}{{ end -}}
{{- with .Values.minResyncPeriod }}{{ $_ := set $data "minResyncPeriod" . }}{{ end -}}
{{- range list "setPVOwnerRef" "useJobForCleaning" "useNodeNameOnly" "removeNodeNotReadyTaint" -}}
{{- if index $.Values . }}{{ $_ := set $data . "true" }}{{ end -}}
{{- end -}}
{{- if .Values.removeNodeNotReadyTaint -}}
{{- $_ := set $data "provisionerNotReadyNodeTaintKey" .Values.provisionerNotReadyNodeTaintKey -}}
{{- end -}}
{{- with .Values.pools }}{{ $_ := set $data "pools" (toYaml .) }}{{ end -}}
{{- with .Values.disks }}{{ $_ := set $data "disks" (toYaml .) }}{{ end -}}
{{- with .Values.flexvolume -}}
{{- $flex := merge (deepCopy .) (dict "client" "/usr/local/bin/localvolume-flexvolume") -}}
{{- $_ := set $data "flexvolume" (toYaml $flex) -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}
