"""What the reader of docs/migrate/topolvm.md has: TopoLVM's own configuration, as it is there."""

#: In the ConfigMap topolvm-lvmd-0. One class of thick volumes, which is the default, one of thin.
LVMD = """
socket-name: /run/topolvm/lvmd.sock
device-classes:
  - name: ssd
    volume-group: data
    default: true
    spare-gb: 10
  - name: cheap
    volume-group: archive
    type: thin
    thin-pool:
      name: pool0
      overprovision-ratio: 2.0
"""
