//! The documentation of the code: every library, and every program that is no library's namesake.
//!
//! What a page rests on is checked already by clippy. Cargo takes that over where features, compiler, and flags are
//! the same; where they are not, all of it is checked once more, which costs time and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::check::LINTS;
use crate::step::{self, Verdict};

/// The example is asked for because its dependencies are those of tests, as clippy's are.
const DOCS: [&str; 8] = [
    "doc",
    "--quiet",
    "--workspace",
    "--no-deps",
    "--all-features",
    "--lib",
    "--example",
    "producer",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Writes it, and fails with the first warning.
pub(crate) fn write(root: &Path) -> Verdict {
    let mut command = step::cargo(root, &DOCS);
    for program in programs(&step::metadata(root)?)? {
        command.args(["--bin", &program]);
    }
    command.env("RUSTDOCFLAGS", "-D warnings");
    // What cargo-clippy sets.
    if let Some(driver) = driver() {
        let flags: String = LINTS.iter().flat_map(|flag| [flag, "__CLIPPY_HACKERY__"]).collect();
        command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", flags);
    }
    step::complete_or_say(&mut command)
}

/// The programs that are documented. One that is called like its package's library would have the same page.
fn programs(metadata: &str) -> Result<Vec<String>, String> {
    let metadata: Metadata = serde_json::from_str(metadata)
        .map_err(|error| format!("cargo metadata cannot be read: {error}"))?;
    let crate_name = |target: &Target| target.name.replace('-', "_");
    let mut programs = Vec::new();
    for package in metadata.packages {
        let is = |target: &Target, kind: &str| target.kind.iter().any(|one| one == kind);
        let libraries: Vec<String> =
            package.targets.iter().filter(|target| is(target, "lib")).map(crate_name).collect();
        programs.extend(
            package
                .targets
                .iter()
                .filter(|target| is(target, "bin") && !libraries.contains(&crate_name(target)))
                .map(|target| target.name.clone()),
        );
    }
    Ok(programs)
}

/// The compiler that clippy is.
fn driver() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let name = format!("clippy-driver{}", std::env::consts::EXE_SUFFIX);
    let path = Path::new(String::from_utf8(output.stdout).ok()?.trim()).join("bin").join(name);
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_documented_unless_they_are_called_like_their_library() {
        let target = |name: &str, kind: &str| format!(r#"{{"name":"{name}","kind":["{kind}"]}}"#);
        let package = |targets: &[String]| format!(r#"{{"targets":[{}]}}"#, targets.join(","));
        let both = [target("a_shop", "lib"), target("a-shop", "bin"), target("till", "bin")];
        let alone = [target("relay", "bin"), target("relay", "test"), target("demo", "example")];
        let metadata = format!(r#"{{"packages":[{},{}]}}"#, package(&both), package(&alone));
        assert_eq!(programs(&metadata).expect("it can be read"), ["till", "relay"]);
        programs("{}").expect_err("no packages");
    }
}
