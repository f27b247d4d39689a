{{/*
Whose place is taken (`replaces`), as YAML: what the agent is told (`args`, `env`), which
directories of the host it gets (`mounts`, see _mounts.tpl), and which `provisioners` the
controller routes claims of.
*/}}
{{- define "provisioner.replaced" -}}
{{- $args := list -}}
{{- $env := list -}}
{{- $mounts := list -}}
{{- $provisioners := list -}}
{{- $nodeName := dict "fieldRef" (dict "fieldPath" "spec.nodeName") -}}
{{- $made := dict "propagation" "HostToContainer" "type" "DirectoryOrCreate" -}}
{{- with .Values.replaces.kutti.rootPath -}}
{{- $env = append $env (dict "name" "KUTTI_NODE_NAME" "valueFrom" $nodeName) -}}
{{- $env = append $env (dict "name" "KUTTI_ROOT_PATH" "value" .) -}}
{{- $mounts = append $mounts (merge (dict "name" "kutti" "host" . "at" .) $made) -}}
{{- $provisioners = append $provisioners "kuttiproject/provisioner-localvolume" -}}
{{- end -}}
{{- with .Values.replaces.localPath.config -}}
{{- $args = concat $args (list "--local-path-config=/etc/local-path" (printf "--local-path-provisioner-name=%s" $.Values.replaces.localPath.provisionerName)) -}}
{{- range $at, $path := include "provisioner.localPath.paths" . | fromYamlArray -}}
{{- $mounts = append $mounts (merge (dict "name" (printf "local-path-%d" $at) "host" $path "at" $path) $made) -}}
{{- end -}}
{{- $provisioners = append $provisioners $.Values.replaces.localPath.provisionerName -}}
{{- end -}}
{{- range $at, $path := .Values.replaces.openebs.basePaths -}}
{{- $args = append $args (printf "--openebs-base-path=%s" $path) -}}
{{- $mounts = append $mounts (merge (dict "name" (printf "openebs-%d" $at) "host" $path "at" $path) $made) -}}
{{- $provisioners = append $provisioners "openebs.io/local" -}}
{{- end -}}
{{- $elastic := .Values.replaces.elastic -}}
{{- with $elastic.driver -}}
{{- $env = append $env (dict "name" "NODE_NAME" "valueFrom" $nodeName) -}}
{{- $env = append $env (dict "name" "DRIVER_KIND" "value" .) -}}
{{- $env = append $env (dict "name" "LVM_VOLUME_GROUP" "value" $elastic.volumeGroup) -}}
{{- $env = append $env (dict "name" "LVM_USE_THIN_VOLUMES" "value" (toString $elastic.thinVolumes)) -}}
{{- $env = append $env (dict "name" "LVM_THIN_POOL" "value" $elastic.thinPool) -}}
{{- $kubelet := $.Values.kubeletDir -}}
{{- $mounts = append $mounts (dict "name" "elastic-kubelet" "host" $kubelet "at" $kubelet "propagation" "Bidirectional") -}}
{{- $mounts = append $mounts (merge (dict "name" "elastic-socket" "host" "/var/run/elastic-local" "at" "/var/run/elastic-local") $made) -}}
{{- if eq . "BINDMOUNT" -}}
{{- $mounts = append $mounts (merge (dict "name" "elastic-volumes" "host" "/mnt/elastic-local-volumes" "at" "/mnt/elastic-local-volumes") $made) -}}
{{- end -}}
{{- $provisioners = append $provisioners "volumes.k8s.elastic.co/elastic-local" -}}
{{- end -}}
{{- toYaml (dict "args" $args "env" $env "mounts" $mounts "provisioners" (uniq $provisioners)) -}}
{{- end -}}

{{/* All paths that local-path's configuration (an object, or config.json as text) names. */}}
{{- define "provisioner.localPath.paths" -}}
{{- $config := include "provisioner.localPath.config" . | fromJson -}}
{{- $places := list $config -}}
{{- range $config.storageClassConfigs }}{{ $places = append $places . }}{{ end -}}
{{- $paths := list -}}
{{- range $places -}}
{{- range .nodePathMap }}{{ $paths = concat $paths (default list .paths) }}{{ end -}}
{{- end -}}
{{- $paths | uniq | toYaml -}}
{{- end -}}

{{- define "provisioner.localPath.config" -}}
{{- if kindIs "string" . -}}
{{- if hasKey (fromJson .) "Error" }}{{ fail (printf "replaces.localPath.config is no JSON: %s" (get (fromJson .) "Error")) }}{{ end -}}
{{- . -}}
{{- else -}}
{{- toPrettyJson . -}}
{{- end -}}
{{- end -}}
