//! A target of which cargo builds no test program (`test = false`) has no test: one that is written there would
//! never run, and nobody would see it. The gate builds no program of nothing, so the line must go with the first test.
//!
//! The facts come from `cargo metadata`. Of a target at `lib.rs` or `main.rs` its whole folder is looked at, which may
//! hold more than its modules: rather a finding too many than a test that is silent.

use serde::Deserialize;

use super::Finding;
use crate::tree::File;

const RULE: &str = "untested";

/// What begins a test, or what is compiled for tests alone.
const MARKS: [&str; 7] =
    ["#[test]", "::test]", "::test(", "cfg(test)", "all(test", "any(test", "proptest!"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: String,
    test: bool,
}

/// Judges what `cargo metadata` said about these files.
pub(super) fn examine(metadata: &str, files: &[File]) -> Result<Vec<Finding>, String> {
    let metadata: Metadata = serde_json::from_str(metadata)
        .map_err(|error| format!("cargo metadata cannot be read: {error}"))?;
    let root = metadata.workspace_root.replace('\\', "/");
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let mut findings = Vec::new();
    for target in targets.filter(|target| !target.test) {
        let path = target.src_path.replace('\\', "/");
        let path = path.strip_prefix(&root).unwrap_or(&path).trim_start_matches('/');
        findings.extend(files.iter().filter(|file| belongs(&file.path, path)).filter_map(|file| {
            let lines = &file.lexed.as_ref()?.lines;
            let index =
                lines.iter().position(|line| MARKS.iter().any(|mark| line.code.contains(mark)))?;
            let message = format!(
                "a test that never runs: the target {} has `test = false`; take that out",
                target.name
            );
            Some(Finding::at(file, index, RULE, message))
        }));
    }
    // Two targets of one folder find the same.
    findings.sort();
    findings.dedup_by(|a, b| (&a.path, a.line) == (&b.path, b.line));
    Ok(findings)
}

/// Whether a file may be part of the target that begins at `root`.
fn belongs(file: &str, root: &str) -> bool {
    let whole = ["/lib.rs", "/main.rs"].iter().find_map(|name| root.strip_suffix(name));
    match whole {
        // Programs in a folder below are targets of their own.
        Some(folder) => file
            .strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/') && !rest.starts_with("/bin/")),
        None => file == root,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a file of a package with a library, a program beside it, and one in `bin`.
    fn found(path: &str, code: &str, test: bool) -> Vec<String> {
        let target = |name: &str, path: &str| {
            format!(r#"{{"name":"{name}","src_path":"/w/a/{path}","test":{test}}}"#)
        };
        let targets =
            [target("a", "src/lib.rs"), target("b", "src/main.rs"), target("c", "src/bin/c.rs")];
        let packages = format!(r#"{{"targets":[{}]}}"#, targets.join(","));
        let metadata = format!(r#"{{"packages":[{packages}],"workspace_root":"/w"}}"#);
        let findings = examine(&metadata, &[File::new(path, code)]).expect("it can be read");
        findings.into_iter().map(|finding| finding.to_string()).collect()
    }

    const TEST: &str = "fn a() {}\n#[test]\nfn b() {}\n";

    #[test]
    fn a_test_where_no_program_is_built_is_flagged_once() {
        let one = found("a/src/deep/rules.rs", TEST, false);
        assert_eq!(one.len(), 1, "{one:?}");
        assert!(one[0].starts_with("a/src/deep/rules.rs:2: [untested]"), "{one:?}");
        assert_eq!(found("a/src/bin/c.rs", TEST, false).len(), 1);
        for code in ["#[tokio::test(start_paused = true)]", "#[cfg(test)]", "proptest! {"] {
            assert_eq!(found("a/src/lib.rs", code, false).len(), 1, "{code}");
        }
    }

    #[test]
    fn a_test_that_runs_is_no_finding() {
        assert_eq!(found("a/src/lib.rs", TEST, true), [""; 0]);
        // Of a target of its own.
        assert_eq!(found("a/tests/main.rs", TEST, false), [""; 0]);
        assert_eq!(found("b/src/lib.rs", TEST, false), [""; 0]);
        assert_eq!(found("a/src/lib.rs", "// #[test]\nlet a = \"#[test]\";", false), [""; 0]);
    }
}
