//! The documentation of the code: every library, and every program.
//!
//! Pages stand in a folder by the crate's name, which cargo empties before it writes them. A program that is called like
//! a library is therefore written in a run before: side by side, one empties what the other writes.
//!
//! What a page rests on is checked already by clippy. Cargo takes that over where features, compiler, and flags are
//! the same; where they are not, all of it is checked once more, which costs time and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::check::LINTS;
use crate::step::{self, Verdict};

/// The example is asked for because its dependencies are those of tests, as clippy's are.
const LIBRARIES: [&str; 3] = ["--lib", "--example", "producer"];

/// What both runs have in common: the same features, so that the second finds what the first checked.
const DOCS: [&str; 5] = ["doc", "--quiet", "--workspace", "--no-deps", "--all-features"];

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

/// The programs, by whether a library has their name.
#[derive(Debug, PartialEq, Eq)]
struct Programs {
    namesakes: Vec<String>,
    others: Vec<String>,
}

/// Writes it, and fails with the first warning. What stays under a shared name is the library's.
pub(crate) fn write(root: &Path) -> Verdict {
    let programs = programs(&step::metadata(root)?)?;
    if !programs.namesakes.is_empty() {
        document(root, &[], &programs.namesakes)?;
    }
    document(root, &LIBRARIES, &programs.others)
}

fn document(root: &Path, targets: &[&str], programs: &[String]) -> Verdict {
    let mut command = step::cargo(root, &DOCS);
    command.args(targets);
    for program in programs {
        command.args(["--bin", program]);
    }
    command.env("RUSTDOCFLAGS", "-D warnings");
    // What cargo-clippy sets.
    if let Some(driver) = driver() {
        let flags: String = LINTS.iter().flat_map(|flag| [flag, "__CLIPPY_HACKERY__"]).collect();
        command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", flags);
    }
    step::complete_or_say(&mut command)
}

fn programs(metadata: &str) -> Result<Programs, String> {
    let metadata: Metadata = serde_json::from_str(metadata)
        .map_err(|error| format!("cargo metadata cannot be read: {error}"))?;
    let named = |kind: &str| -> Vec<String> {
        let targets = metadata.packages.iter().flat_map(|package| &package.targets);
        targets.filter(|t| t.kind.iter().any(|one| one == kind)).map(|t| t.name.clone()).collect()
    };
    let crate_name = |name: &String| name.replace('-', "_");
    let libraries: Vec<String> = named("lib").iter().map(crate_name).collect();
    let (namesakes, others) =
        named("bin").into_iter().partition(|program| libraries.contains(&crate_name(program)));
    Ok(Programs { namesakes, others })
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
    fn programs_are_documented_apart_where_any_library_has_their_name() {
        let target = |name: &str, kind: &str| format!(r#"{{"name":"{name}","kind":["{kind}"]}}"#);
        let package = |targets: &[String]| format!(r#"{{"targets":[{}]}}"#, targets.join(","));
        let both = [target("a_shop", "lib"), target("a-shop", "bin"), target("till", "bin")];
        let alone = [target("relay", "bin"), target("relay", "test"), target("demo", "example")];
        let elsewhere = [target("relay", "lib")];
        let metadata = format!(
            r#"{{"packages":[{},{},{}]}}"#,
            package(&both),
            package(&alone),
            package(&elsewhere)
        );
        let found = programs(&metadata).expect("it can be read");
        assert_eq!(found.namesakes, ["a-shop", "relay"]);
        assert_eq!(found.others, ["till"]);
        programs("{}").expect_err("no packages");
    }
}
