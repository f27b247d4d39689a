{{/* What no schema can say. Each refusal names the value and what to do. */}}
{{- define "provisioner.checks" -}}
{{- if .Values.enableWindows -}}
{{- fail "enableWindows: there is no agent for Windows; leave Windows nodes to the provisioner that serves them" -}}
{{- end -}}
{{- $image := tpl .Values.image . -}}
{{- if and .Values.imageDigest (contains "@" $image) -}}
{{- fail (printf "imageDigest: image has a digest already, %s: give one of them" $image) -}}
{{- end -}}
{{- $seen := dict -}}
{{- range .Values.classes -}}
{{- if hasKey $seen .name }}{{ fail (printf "classes: %s is there twice" .name) }}{{ end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- range .Values.dynamicStorageClasses -}}
{{- if hasKey $seen .name }}{{ fail (printf "dynamicStorageClasses: %s is there twice, or is in classes as well" .name) }}{{ end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- range $key := list "flexvolume" "disks" -}}
{{- if and (index $.Values $key) (not $.Values.privileged) (not $.Values.securityContext) -}}
{{- fail (printf "%s needs privileged: true, as what the agent mounts must reach the host" $key) -}}
{{- end -}}
{{- end -}}
{{- $csi := "csi.localvolume.dev" -}}
{{- if .Values.csi.enabled -}}
{{- if and (not .Values.privileged) (not .Values.securityContext) -}}
{{- fail "csi.enabled needs privileged: true, as what the agent mounts must reach the host" -}}
{{- end -}}
{{- if not .Values.mountDevVolume -}}
{{- fail "csi.enabled needs mountDevVolume: true, as devices of volumes are in the host's /dev" -}}
{{- end -}}
{{- with .Values.updateStrategy.rollingUpdate -}}
{{- if not (has (toString (default 0 .maxSurge)) (list "0" "0%")) -}}
{{- fail "csi.enabled allows no updateStrategy.rollingUpdate.maxSurge: the kubelet refuses a second agent that serves the same driver" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $pool := .Values.pools -}}
{{- if and $pool.inline (not $.Values.csi.enabled) -}}
{{- fail (printf "pools: %s has inline, which needs csi.enabled: true" $name) -}}
{{- end -}}
{{- end -}}
{{- range .Values.dynamicStorageClasses -}}
{{- if and (eq (default "" .provisioner) $csi) (not $.Values.csi.enabled) -}}
{{- fail (printf "dynamicStorageClasses: %s has the provisioner %s, which needs csi.enabled: true" .name $csi) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.csi.ioLimits (not .Values.csi.enabled) -}}
{{- fail "csi.ioLimits needs csi.enabled: true" -}}
{{- end -}}
{{- if and .Values.csi.maxVolumesPerNode (not .Values.csi.enabled) -}}
{{- fail "csi.maxVolumesPerNode needs csi.enabled: true" -}}
{{- end -}}
{{- if and .Values.csi.snapshotController.enabled (not .Values.csi.enabled) -}}
{{- fail "csi.snapshotController needs csi.enabled: true" -}}
{{- end -}}
{{- $snapshots := dict -}}
{{- range .Values.csi.snapshotClasses -}}
{{- if not $.Values.csi.enabled -}}
{{- fail (printf "csi.snapshotClasses: %s needs csi.enabled: true" .name) -}}
{{- end -}}
{{- if hasKey $snapshots .name }}{{ fail (printf "csi.snapshotClasses: %s is there twice" .name) }}{{ end -}}
{{- $_ := set $snapshots .name true -}}
{{- end -}}
{{- if and .Values.replaces.elastic.driver (or .Values.flexvolume (not .Values.privileged)) -}}
{{- fail "replaces.elastic needs privileged: true, and takes the place of flexvolume: give one of them" -}}
{{- end -}}
{{- if and .Values.disks (not .Values.mountDevVolume) -}}
{{- fail "disks needs mountDevVolume: true, as the disks are in the host's /dev" -}}
{{- end -}}
{{- if and .Values.removeNodeNotReadyTaint (not .Values.provisionerNotReadyNodeTaintKey) -}}
{{- fail "removeNodeNotReadyTaint needs provisionerNotReadyNodeTaintKey, the taint to remove" -}}
{{- end -}}
{{- if .Values.metrics.secure -}}
{{- if not .Values.metrics.secretName -}}
{{- fail "metrics.secure needs metrics.secretName, the Secret of the certificate" -}}
{{- end -}}
{{- $monitors := .Values.serviceMonitor -}}
{{- if and $monitors.enabled (not $monitors.tlsConfig) (ne (default .Release.Namespace $monitors.namespace) .Release.Namespace) -}}
{{- fail "serviceMonitor.namespace with metrics.secure needs serviceMonitor.tlsConfig: a ServiceMonitor reads no Secret of another namespace" -}}
{{- end -}}
{{- else if or .Values.metrics.secretName .Values.serviceMonitor.tlsConfig -}}
{{- fail "metrics.secretName and serviceMonitor.tlsConfig need metrics.secure: true" -}}
{{- end -}}
{{- end -}}

{{/*
Flags for the agent from additionalArgs. klog's flags that say where the log goes are left out:
ours goes to standard error, which is what they are given for.
*/}}
{{- define "provisioner.additionalArgs" -}}
{{- $args := list -}}
{{- range .Values.additionalArgs -}}
{{- if not (regexMatch "^--?(stderrthreshold|logtostderr|alsologtostderr)(=|$)" .) }}{{ $args = append $args . }}{{ end -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}
