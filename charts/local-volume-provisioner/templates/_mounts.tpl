{{/*
Which directories of the host the agent gets, as YAML: `volumes` and `mounts` of its pod. Where two
values name the same place (classes that share a directory and differ in namePattern), it is
mounted once; two directories at one place are refused.
*/}}
{{- define "provisioner.mounts" -}}
{{- $wanted := list -}}
{{- if .Values.mountDevVolume -}}
{{- $wanted = append $wanted (dict "name" "provisioner-dev" "host" "/dev" "at" "/dev") -}}
{{- end -}}
{{/* Disks that the agent formats it also mounts, and the host must see it. */}}
{{- $discovery := dict "propagation" "HostToContainer" -}}
{{- if .Values.disks }}{{ $discovery = dict "propagation" "Bidirectional" "type" "DirectoryOrCreate" }}{{ end -}}
{{- range .Values.classes -}}
{{- $wanted = append $wanted (merge (dict "name" .name "host" .hostDir "at" (default .hostDir .mountDir)) $discovery) -}}
{{- end -}}
{{- range $name, $pool := .Values.pools -}}
{{- if $pool.hostDir -}}
{{- $wanted = append $wanted (dict "name" (printf "pool-%s" $name) "host" $pool.hostDir "at" (default $pool.hostDir $pool.mountDir) "propagation" "HostToContainer") -}}
{{- end -}}
{{- end -}}
{{- $wanted = append $wanted (dict "name" "localvolume-run" "host" "/run/localvolume" "at" "/run/localvolume" "type" "DirectoryOrCreate") -}}
{{- $wanted = append $wanted (dict "name" "localvolume-records" "host" .Values.recordsDir "at" .Values.recordsDir "type" "DirectoryOrCreate") -}}
{{- $wanted = append $wanted (dict "name" "localvolume-udev" "host" "/run/udev" "at" "/run/udev" "readOnly" true) -}}
{{- if eq (include "provisioner.usesLvm" .) "true" -}}
{{- $wanted = append $wanted (dict "name" "localvolume-lvm" "host" "/run/lvm" "at" "/run/lvm" "type" "DirectoryOrCreate") -}}
{{- $wanted = append $wanted (dict "name" "localvolume-lvm-lock" "host" "/run/lock/lvm" "at" "/run/lock/lvm" "type" "DirectoryOrCreate") -}}
{{- if .Values.lvmDevicesFile -}}
{{- $wanted = append $wanted (dict "name" "localvolume-lvm-devices" "host" "/etc/lvm/devices" "at" "/etc/lvm/devices" "type" "DirectoryOrCreate" "readOnly" true) -}}
{{- end -}}
{{- end -}}
{{- with .Values.flexvolume -}}
{{- $plugins := default "/usr/libexec/kubernetes/kubelet-plugins/volume/exec" .pluginDirectory -}}
{{- $wanted = append $wanted (dict "name" "flexvolume-plugins" "host" $.Values.volumePluginDir "at" $plugins "type" "DirectoryOrCreate") -}}
{{- $wanted = append $wanted (dict "name" "flexvolume-kubelet" "host" $.Values.kubeletDir "at" $.Values.kubeletDir "propagation" "Bidirectional") -}}
{{- $socket := default "/run/localvolume/flexvolume.sock" .socket -}}
{{- $wanted = append $wanted (dict "name" "flexvolume-socket" "host" (dir (default $socket .socketOnHost)) "at" (dir $socket) "type" "DirectoryOrCreate") -}}
{{- if eq (default "lvm" .driver) "bindmount" -}}
{{- $root := default "/mnt/elastic-local-volumes" .bindRoot -}}
{{- $wanted = append $wanted (dict "name" "flexvolume-volumes" "host" $root "at" $root "propagation" "HostToContainer") -}}
{{- end -}}
{{- end -}}
{{/*
Mounts of pods and both sockets of CSI are in it. No directory in it has a mount of its own: that
would reach the host, and stay there.
*/}}
{{- if .Values.csi.enabled -}}
{{- $wanted = append $wanted (dict "name" "csi-kubelet" "host" .Values.kubeletDir "at" .Values.kubeletDir "propagation" "Bidirectional") -}}
{{- end -}}
{{- if .Values.csi.ioLimits -}}
{{- $wanted = append $wanted (dict "name" "csi-cgroup" "host" "/sys/fs/cgroup" "at" "/host/cgroup" "type" "Directory") -}}
{{- end -}}
{{- $wanted = concat $wanted (include "provisioner.replaced" . | fromYaml).mounts -}}
{{/* Where pods have their mounts: what a pod has mounted still is not cleaned. */}}
{{- $wanted = append $wanted (dict "name" "localvolume-kubelet" "host" .Values.kubeletDir "at" .Values.kubeletDir "propagation" "HostToContainer" "readOnly" true) -}}
{{- $taken := dict -}}
{{- $names := dict -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- range $wanted -}}
{{- $host := clean .host -}}
{{- $at := clean .at -}}
{{- if hasKey $taken $at -}}
{{- if ne (get $taken $at) $host -}}
{{- fail (printf "two directories of the host, %s and %s, are to be mounted at %s: give one of them another mountDir" (get $taken $at) $host $at) -}}
{{- end -}}
{{- else -}}
{{- $_ := set $taken $at $host -}}
{{- $name := include "provisioner.volumeName" .name -}}
{{- if hasKey $names $name -}}
{{- fail (printf "two volumes of the pod would have the name %s: rename the class or pool" $name) -}}
{{- end -}}
{{- $_ := set $names $name true -}}
{{- $path := dict "path" .host -}}
{{- with .type }}{{ $_ := set $path "type" . }}{{ end -}}
{{- $volumes = append $volumes (dict "name" $name "hostPath" $path) -}}
{{- $mount := dict "name" $name "mountPath" .at -}}
{{- with .propagation }}{{ $_ := set $mount "mountPropagation" . }}{{ end -}}
{{- with .readOnly }}{{ $_ := set $mount "readOnly" . }}{{ end -}}
{{- $mounts = append $mounts $mount -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "volumes" $volumes "mounts" $mounts) -}}
{{- end -}}

{{/* A volume's name in a pod is a DNS label; a StorageClass's may have dots, and be longer. */}}
{{- define "provisioner.volumeName" -}}
{{- if and (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .) (le (len .) 63) -}}
{{- . -}}
{{- else -}}
{{- printf "%s-%s" (. | replace "." "-" | trunc 54 | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- end -}}
{{- end -}}

{{- define "provisioner.usesLvm" -}}
{{- $uses := not (empty .Values.lvmd) -}}
{{- range .Values.pools }}{{ if eq (default "directory" .backend) "lvm" }}{{ $uses = true }}{{ end }}{{ end -}}
{{- if eq .Values.replaces.elastic.driver "LVM" }}{{ $uses = true }}{{ end -}}
{{- with .Values.flexvolume }}{{ if eq (default "lvm" .driver) "lvm" }}{{ $uses = true }}{{ end }}{{ end -}}
{{- $uses -}}
{{- end -}}
