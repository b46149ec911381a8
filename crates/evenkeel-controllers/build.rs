//! Sets `k8s_v1_37` if the chosen version of `k8s-openapi` has the types that some controllers need.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(k8s_v1_37)");
    println!("cargo::rerun-if-changed=build.rs");
    // 0x00_MM_NN_00 for the minor version NN of the major version MM.
    let version = std::env::vars().find_map(|(name, value)| {
        let is_version = name.starts_with("DEP_K8S_OPENAPI_") && name.ends_with("_VERSION");
        is_version.then(|| value.parse::<u32>().ok()).flatten()
    });
    if version.is_some_and(|version| version >= 0x00_01_25_00) {
        println!("cargo::rustc-cfg=k8s_v1_37");
    }
}
