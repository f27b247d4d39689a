"""The messages and services of CSI 1.13 and of the kubelet's plugin registration, as text.

A line is a message with its fields, or an enum with its values:

    Message: 1 name, 2 other TYPE, 3 more [TYPE], 4 labels map, 5 this TYPE of ONEOF
    Enum = FIRST SECOND - FOURTH

A field without a type is a string, `[TYPE]` is repeated, `map` is map<string, string>. The values
of an enum count from 0, and a `-` leaves one out. Nested types have dotted names; a type is looked
for in the message itself, then in those around it. A service is a line with its RPCs, which take
`RPCRequest` and answer `RPCResponse` unless it says otherwise; `*` marks an answer that is a
stream.
"""

from typing import Final

CSI_PACKAGE: Final = "csi.v1"
REGISTRATION_PACKAGE: Final = "pluginregistration"

CSI_SERVICES: Final = """
Identity: GetPluginInfo, GetPluginCapabilities, Probe
Controller: CreateVolume, DeleteVolume, ControllerPublishVolume, ControllerUnpublishVolume,
  ValidateVolumeCapabilities, ListVolumes, ControllerListVolumeHealth, ControllerGetVolumeHealth,
  GetCapacity, ControllerGetCapabilities, CreateSnapshot, DeleteSnapshot, ListSnapshots,
  GetSnapshot, ControllerExpandVolume, ControllerGetVolume, ControllerModifyVolume
GroupController: GroupControllerGetCapabilities, CreateVolumeGroupSnapshot,
  DeleteVolumeGroupSnapshot, GetVolumeGroupSnapshot
SnapshotMetadata: GetMetadataAllocated *, GetMetadataDelta *
Node: NodeStageVolume, NodeUnstageVolume, NodePublishVolume, NodeUnpublishVolume,
  NodeGetVolumeStats, NodeGetVolumeHealth, NodeGetStorageHealth, NodeExpandVolume,
  NodeGetCapabilities, NodeGetInfo
"""

REGISTRATION_SERVICES: Final = """
Registration: GetInfo InfoRequest PluginInfo,
  NotifyRegistrationStatus RegistrationStatus RegistrationStatusResponse
"""

REGISTRATION_MESSAGES: Final = """
PluginInfo: 1 type, 2 name, 3 endpoint, 4 supported_versions [string]
RegistrationStatus: 1 plugin_registered bool, 2 error
RegistrationStatusResponse:
InfoRequest:
"""

CSI_MESSAGES: Final = """
GetPluginInfoRequest:
GetPluginInfoResponse: 1 name, 2 vendor_version, 3 manifest map
GetPluginCapabilitiesRequest:
GetPluginCapabilitiesResponse: 1 capabilities [PluginCapability]
PluginCapability: 1 service Service of type, 2 volume_expansion VolumeExpansion of type
PluginCapability.Service: 1 type Type
PluginCapability.Service.Type = UNKNOWN CONTROLLER_SERVICE VOLUME_ACCESSIBILITY_CONSTRAINTS
  GROUP_CONTROLLER_SERVICE SNAPSHOT_METADATA_SERVICE SNAPSHOT_ACCESSIBILITY_CONSTRAINTS
PluginCapability.VolumeExpansion: 1 type Type
PluginCapability.VolumeExpansion.Type = UNKNOWN ONLINE OFFLINE
ProbeRequest:
ProbeResponse: 1 ready BoolValue

CreateVolumeRequest: 1 name, 2 capacity_range CapacityRange,
  3 volume_capabilities [VolumeCapability], 4 parameters map, 5 secrets map,
  6 volume_content_source VolumeContentSource,
  7 accessibility_requirements TopologyRequirement, 8 mutable_parameters map
CreateVolumeResponse: 1 volume Volume
VolumeContentSource: 1 snapshot SnapshotSource of type, 2 volume VolumeSource of type
VolumeContentSource.SnapshotSource: 1 snapshot_id
VolumeContentSource.VolumeSource: 1 volume_id
VolumeCapability: 1 block BlockVolume of access_type, 2 mount MountVolume of access_type,
  3 access_mode AccessMode
VolumeCapability.BlockVolume:
VolumeCapability.MountVolume: 1 fs_type, 2 mount_flags [string], 3 volume_mount_group
VolumeCapability.AccessMode: 1 mode Mode
VolumeCapability.AccessMode.Mode = UNKNOWN SINGLE_NODE_WRITER SINGLE_NODE_READER_ONLY
  MULTI_NODE_READER_ONLY MULTI_NODE_SINGLE_WRITER MULTI_NODE_MULTI_WRITER
  SINGLE_NODE_SINGLE_WRITER SINGLE_NODE_MULTI_WRITER
CapacityRange: 1 required_bytes int64, 2 limit_bytes int64
Volume: 1 capacity_bytes int64, 2 volume_id, 3 volume_context map,
  4 content_source VolumeContentSource, 5 accessible_topology [Topology]
TopologyRequirement: 1 requisite [Topology], 2 preferred [Topology]
Topology: 1 segments map
DeleteVolumeRequest: 1 volume_id, 2 secrets map
DeleteVolumeResponse:
ControllerPublishVolumeRequest: 1 volume_id, 2 node_id, 3 volume_capability VolumeCapability,
  4 readonly bool, 5 secrets map, 6 volume_context map
ControllerPublishVolumeResponse: 1 publish_context map
ControllerUnpublishVolumeRequest: 1 volume_id, 2 node_id, 3 secrets map
ControllerUnpublishVolumeResponse:
ValidateVolumeCapabilitiesRequest: 1 volume_id, 2 volume_context map,
  3 volume_capabilities [VolumeCapability], 4 parameters map, 5 secrets map,
  6 mutable_parameters map
ValidateVolumeCapabilitiesResponse: 1 confirmed Confirmed, 2 message
ValidateVolumeCapabilitiesResponse.Confirmed: 1 volume_context map,
  2 volume_capabilities [VolumeCapability], 3 parameters map, 4 mutable_parameters map
ListVolumesRequest: 1 max_entries int32, 2 starting_token
ListVolumesResponse: 1 entries [Entry], 2 next_token
ListVolumesResponse.VolumeStatus: 1 published_node_ids [string]
ListVolumesResponse.Entry: 1 volume Volume, 2 status VolumeStatus
ControllerGetVolumeRequest: 1 volume_id
ControllerGetVolumeResponse: 1 volume Volume, 2 status VolumeStatus
ControllerGetVolumeResponse.VolumeStatus: 1 published_node_ids [string]
ControllerModifyVolumeRequest: 1 volume_id, 2 secrets map, 3 mutable_parameters map
ControllerModifyVolumeResponse:
GetCapacityRequest: 1 volume_capabilities [VolumeCapability], 2 parameters map,
  3 accessible_topology Topology
GetCapacityResponse: 1 available_capacity int64, 2 maximum_volume_size Int64Value,
  3 minimum_volume_size Int64Value
ControllerGetCapabilitiesRequest:
ControllerGetCapabilitiesResponse: 1 capabilities [ControllerServiceCapability]
ControllerServiceCapability: 1 rpc RPC of type
ControllerServiceCapability.RPC: 1 type Type
ControllerServiceCapability.RPC.Type = UNKNOWN CREATE_DELETE_VOLUME PUBLISH_UNPUBLISH_VOLUME
  LIST_VOLUMES GET_CAPACITY CREATE_DELETE_SNAPSHOT LIST_SNAPSHOTS CLONE_VOLUME PUBLISH_READONLY
  EXPAND_VOLUME LIST_VOLUMES_PUBLISHED_NODES - GET_VOLUME SINGLE_NODE_MULTI_WRITER MODIFY_VOLUME
  GET_SNAPSHOT GET_VOLUME_HEALTH LIST_VOLUME_HEALTH
ControllerExpandVolumeRequest: 1 volume_id, 2 capacity_range CapacityRange, 3 secrets map,
  4 volume_capability VolumeCapability
ControllerExpandVolumeResponse: 1 capacity_bytes int64, 2 node_expansion_required bool

VolumeHealthErrorType = UNKNOWN_VOLUME_HEALTH_TYPE DEGRADED INACCESSIBLE DATA_LOSS
VolumeHealth: 1 volume_id, 2 health_statuses [VolumeHealthEntry]
VolumeHealth.VolumeHealthEntry: 1 status VolumeHealthErrorType, 2 reason, 3 message
ControllerListVolumeHealthRequest: 1 max_entries int32, 2 starting_token, 3 secrets map
ControllerListVolumeHealthResponse: 1 entries [VolumeHealth], 2 next_token
ControllerGetVolumeHealthRequest: 1 volume_id, 2 secrets map
ControllerGetVolumeHealthResponse: 1 volume_health VolumeHealth

CreateSnapshotRequest: 1 source_volume_id, 2 name, 3 secrets map, 4 parameters map,
  5 accessibility_requirements TopologyRequirement
CreateSnapshotResponse: 1 snapshot Snapshot
Snapshot: 1 size_bytes int64, 2 snapshot_id, 3 source_volume_id, 4 creation_time Timestamp,
  5 ready_to_use bool, 6 group_snapshot_id, 7 accessible_topology [Topology]
DeleteSnapshotRequest: 1 snapshot_id, 2 secrets map
DeleteSnapshotResponse:
ListSnapshotsRequest: 1 max_entries int32, 2 starting_token, 3 source_volume_id, 4 snapshot_id,
  5 secrets map
ListSnapshotsResponse: 1 entries [Entry], 2 next_token
ListSnapshotsResponse.Entry: 1 snapshot Snapshot
GetSnapshotRequest: 1 snapshot_id, 2 secrets map
GetSnapshotResponse: 1 snapshot Snapshot

NodeStageVolumeRequest: 1 volume_id, 2 publish_context map, 3 staging_target_path,
  4 volume_capability VolumeCapability, 5 secrets map, 6 volume_context map
NodeStageVolumeResponse:
NodeUnstageVolumeRequest: 1 volume_id, 2 staging_target_path
NodeUnstageVolumeResponse:
NodePublishVolumeRequest: 1 volume_id, 2 publish_context map, 3 staging_target_path,
  4 target_path, 5 volume_capability VolumeCapability, 6 readonly bool, 7 secrets map,
  8 volume_context map
NodePublishVolumeResponse:
NodeUnpublishVolumeRequest: 1 volume_id, 2 target_path
NodeUnpublishVolumeResponse:
NodeGetVolumeStatsRequest: 1 volume_id, 2 volume_path, 3 staging_target_path
NodeGetVolumeStatsResponse: 1 usage [VolumeUsage]
VolumeUsage: 1 available int64, 2 total int64, 3 used int64, 4 unit Unit
VolumeUsage.Unit = UNKNOWN BYTES INODES
NodeGetVolumeHealthRequest: 1 volume_id, 2 volume_publish_path, 3 staging_target_path
NodeGetVolumeHealthResponse: 1 volume_health VolumeHealth
NodeGetStorageHealthRequest: 1 secrets map
NodeGetStorageHealthResponse: 1 backend_health [StorageBackendHealth]
NodeGetStorageHealthResponse.StorageBackendHealth: 1 status StorageHealthErrorType, 2 reason,
  3 message, 4 volume_capability VolumeCapability
StorageHealthErrorType = UNKNOWN_STORAGE_HEALTH_ERROR_TYPE STORAGE_DEGRADED STORAGE_UNREACHABLE
NodeGetCapabilitiesRequest:
NodeGetCapabilitiesResponse: 1 capabilities [NodeServiceCapability]
NodeServiceCapability: 1 rpc RPC of type
NodeServiceCapability.RPC: 1 type Type
NodeServiceCapability.RPC.Type = UNKNOWN STAGE_UNSTAGE_VOLUME GET_VOLUME_STATS EXPAND_VOLUME -
  SINGLE_NODE_MULTI_WRITER VOLUME_MOUNT_GROUP GET_VOLUME_HEALTH GET_STORAGE_HEALTH
NodeGetInfoRequest:
NodeGetInfoResponse: 1 node_id, 2 max_volumes_per_node int64, 3 accessible_topology Topology
NodeExpandVolumeRequest: 1 volume_id, 2 volume_path, 3 capacity_range CapacityRange,
  4 staging_target_path, 5 volume_capability VolumeCapability, 6 secrets map
NodeExpandVolumeResponse: 1 capacity_bytes int64

GroupControllerGetCapabilitiesRequest:
GroupControllerGetCapabilitiesResponse: 1 capabilities [GroupControllerServiceCapability]
GroupControllerServiceCapability: 1 rpc RPC of type
GroupControllerServiceCapability.RPC: 1 type Type
GroupControllerServiceCapability.RPC.Type = UNKNOWN CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
CreateVolumeGroupSnapshotRequest: 1 name, 2 source_volume_ids [string], 3 secrets map,
  4 parameters map
CreateVolumeGroupSnapshotResponse: 1 group_snapshot VolumeGroupSnapshot
VolumeGroupSnapshot: 1 group_snapshot_id, 2 snapshots [Snapshot], 3 creation_time Timestamp,
  4 ready_to_use bool
DeleteVolumeGroupSnapshotRequest: 1 group_snapshot_id, 2 snapshot_ids [string], 3 secrets map
DeleteVolumeGroupSnapshotResponse:
GetVolumeGroupSnapshotRequest: 1 group_snapshot_id, 2 snapshot_ids [string], 3 secrets map
GetVolumeGroupSnapshotResponse: 1 group_snapshot VolumeGroupSnapshot

BlockMetadata: 1 byte_offset int64, 2 size_bytes int64
BlockMetadataType = UNKNOWN FIXED_LENGTH VARIABLE_LENGTH
GetMetadataAllocatedRequest: 1 snapshot_id, 2 starting_offset int64, 3 max_results int32,
  4 secrets map
GetMetadataAllocatedResponse: 1 block_metadata_type BlockMetadataType,
  2 volume_capacity_bytes int64, 3 block_metadata [BlockMetadata]
GetMetadataDeltaRequest: 1 base_snapshot_id, 2 target_snapshot_id, 3 starting_offset int64,
  4 max_results int32, 5 secrets map
GetMetadataDeltaResponse: 1 block_metadata_type BlockMetadataType,
  2 volume_capacity_bytes int64, 3 block_metadata [BlockMetadata]
"""
