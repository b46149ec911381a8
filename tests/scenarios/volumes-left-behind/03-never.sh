# The claim goes without having named the volume.
k delete pvc never
eventually field "pv/$NS-never" '{.status.phase}' Released
