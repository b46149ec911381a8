//! Every source file is compiled: a `mod` reaches it.

use evenkeel_tidy::{crates, read, sources};

#[test]
fn every_file_is_compiled() {
    for (name, path) in crates() {
        for file in sources(&path.join("src")) {
            let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
            let folder = file.parent().expect("a folder");
            if matches!(&*stem, "lib" | "main") || folder.ends_with("bin") {
                continue;
            }
            let (module, parents) = if stem == "mod" {
                let above = folder.parent().expect("a folder");
                (
                    folder.file_name().expect("a name").to_string_lossy().into_owned(),
                    above.to_path_buf(),
                )
            } else {
                (stem, folder.to_path_buf())
            };
            let beside = parents.with_extension("rs");
            let candidates =
                [parents.join("mod.rs"), parents.join("lib.rs"), parents.join("main.rs"), beside];
            let declared =
                candidates.iter().filter(|candidate| candidate.exists()).any(|candidate| {
                    let text = read(candidate);
                    text.lines().any(|line| {
                        let line = line.trim();
                        line.ends_with(&format!("mod {module};"))
                            || line.ends_with(&format!("mod {module} {{"))
                    })
                });
            assert!(declared, "{name}: no `mod` reaches {}", file.display());
        }
    }
}
