{{/*
What the policies know of the configuration, as YAML: they can look nothing up.

`prepared`: the discovery directories, each with its class as a regular expression; `shared`: the
terms of selectors, each with its class; `dynamic`: the classes of volumes made for claims, as one
regular expression, "" for none; `places`: where those volumes lie, and `groups`: the same as
regular expressions; `hostPaths`: where they may be of the kind hostPath; `provisioners`: by whom
they may be said to be made; `drivers`: the CSI drivers of volumes that agents make.
*/}}
{{- define "confinement.known" -}}
{{- $flex := include "confinement.flexDrivers" . | fromYamlArray -}}
{{- $prepared := list -}}
{{- $shared := list -}}
{{- range $class := .Values.classes -}}
{{- $name := include "confinement.pattern" $class.name -}}
{{- $prepared = append $prepared (dict "class" (printf "^%s$" $name) "directory" (include "confinement.below" $class.hostDir)) -}}
{{- range $class.selector -}}
{{- $parts := list -}}
{{- range .matchExpressions -}}
{{- $parts = append $parts (printf "%s %s %s" .key .operator (join "," (.values | default list))) -}}
{{- end -}}
{{- if and $parts (not .matchFields) -}}
{{- $shared = append $shared (dict "class" $class.name "term" (join ";" $parts)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $directory := .Values.confinement.directories -}}
{{- $prepared = append $prepared (dict "class" (printf "^%s$" (include "confinement.pattern" $name)) "directory" (include "confinement.below" $directory)) -}}
{{- end -}}
{{- $provisioners := list "dynamic.localvolume.dev" -}}
{{- range (include "provisioner.controllerValues" . | fromYaml).dynamicProvisioners -}}
{{- if not (has . $flex) }}{{ $provisioners = append $provisioners . }}{{ end -}}
{{- end -}}
{{- $drivers := list -}}
{{- if .Values.csi.enabled }}{{ $drivers = append $drivers "csi.localvolume.dev" }}{{ end -}}
{{- $classes := list -}}
{{- range .Values.dynamicStorageClasses -}}
{{- if has (default "dynamic.localvolume.dev" .provisioner) (concat $provisioners $drivers) }}{{ $classes = append $classes .name }}{{ end -}}
{{- end -}}
{{- /* The agent's own links to the loop devices of images. */ -}}
{{- $places := list "/run/localvolume/" -}}
{{- $groups := list -}}
{{- range .Values.pools -}}
{{- $classes = concat $classes (default list .classes) -}}
{{- with .hostDir }}{{ $places = append $places (include "confinement.below" .) }}{{ end -}}
{{- with .volumeGroup }}{{ $places = append $places (include "confinement.below" (printf "/dev/%s" .)) }}{{ end -}}
{{- /* Fails for what only Python takes: CEL would refuse every volume of such a pool. */ -}}
{{- if .volumeGroupPattern }}{{ $_ := mustRegexMatch .volumeGroupPattern "" }}{{ end -}}
{{- with .volumeGroupPattern }}{{ $groups = append $groups (printf "^/dev/(?:%s)/[^/]+$" .) }}{{ end -}}
{{- end -}}
{{- with .Values.lvmd -}}
{{- range (ternary . (toYaml .) (kindIs "string" .) | fromYaml | default dict) | dig "device-classes" list -}}
{{- with index . "volume-group" }}{{ $places = append $places (include "confinement.below" (printf "/dev/%s" .)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $replaces := .Values.replaces -}}
{{- with $replaces.kutti.rootPath }}{{ $places = append $places (include "confinement.below" .) }}{{ end -}}
{{- range $replaces.openebs.basePaths }}{{ $places = append $places (include "confinement.below" .) }}{{ end -}}
{{- $hostPaths := list -}}
{{- with $replaces.localPath.config -}}
{{- range include "provisioner.localPath.paths" . | fromYamlArray }}{{ $hostPaths = append $hostPaths (include "confinement.below" .) }}{{ end -}}
{{- end -}}
{{- range .Values.confinement.dynamicDirectories -}}
{{- $places = append $places (include "confinement.below" .) -}}
{{- if has $replaces.localPath.provisionerName $provisioners }}{{ $hostPaths = append $hostPaths (include "confinement.below" .) }}{{ end -}}
{{- end -}}
{{- $patterns := list -}}
{{- range concat $classes .Values.confinement.dynamicClasses | uniq }}{{ $patterns = append $patterns (include "confinement.pattern" .) }}{{ end -}}
{{- $dynamic := "" -}}
{{- if $patterns }}{{ $dynamic = printf "^(?:%s)$" (join "|" $patterns) }}{{ end -}}
{{- toYaml (dict "prepared" $prepared "shared" $shared "dynamic" $dynamic "places" (concat $places $hostPaths | uniq) "groups" $groups "hostPaths" $hostPaths "provisioners" (uniq $provisioners) "drivers" $drivers) -}}
{{- end -}}

{{/* A class's name as a regular expression: `*` stands for any characters. */}}
{{- define "confinement.pattern" -}}
{{- regexReplaceAllLiteral "\\\\\\*" (regexQuoteMeta .) ".*" -}}
{{- end -}}

{{/* What the paths begin with that lie below a directory. */}}
{{- define "confinement.below" -}}
{{- printf "%s/" (clean . | trimSuffix "/") -}}
{{- end -}}

{{/* The drivers of FlexVolumes that the controller makes. */}}
{{- define "confinement.flexDrivers" -}}
{{- list "localvolume.dev/flexvolume" "volumes.k8s.elastic.co/elastic-local" | toYaml -}}
{{- end -}}

{{/* Whether FlexVolume is served, and so provisioned by the controller: "true" or "". */}}
{{- define "confinement.servesFlexVolume" -}}
{{- if or .Values.flexvolume .Values.replaces.elastic.driver }}true{{ end -}}
{{- end -}}

{{/* The image of cleaning Jobs: of an environment variable that is given twice the last counts. */}}
{{- define "confinement.jobImage" -}}
{{- $image := include "provisioner.image" . -}}
{{- range .Values.additionalEnv }}{{ if eq .name "JOB_CONTAINER_IMAGE" }}{{ $image = .value }}{{ end }}{{ end -}}
{{- $image -}}
{{- end -}}
