//! Nothing in the tree names one person's machine or one company's package mirror: what is built
//! here is built the same elsewhere.

use super::Finding;
use crate::tree::File;

const RULE: &str = "address";
const FOLDERS: [&str; 3] = ["/home/", "/root/", "/work/"];
/// How a lock file names the default registry; any other source is flagged.
const DEFAULT_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Manifest keys whose value is an address for people.
const FOR_PEOPLE: [&str; 3] = ["repository", "homepage", "documentation"];

pub(super) fn examine(file: &File) -> Vec<Finding> {
    // This file must spell out what it forbids.
    if file.path == "xtask/src/tidy/addresses.rs" {
        return Vec::new();
    }
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    let judge: fn(&str) -> Option<&'static str> = match name {
        "Cargo.lock" => in_lock,
        "Cargo.toml" => in_manifest,
        "config.toml" if file.path.contains(".cargo/") => in_manifest,
        _ => |_| None,
    };
    file.text
        .lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let message = judge(line).or_else(|| machine(line))?;
            Some(Finding::at(file, index, RULE, message))
        })
        .collect()
}

fn machine(line: &str) -> Option<&'static str> {
    let named = FOLDERS.iter().any(|folder| {
        line.match_indices(folder).any(|(at, _)| {
            !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-*}>~".contains(c))
        })
    });
    named.then_some("a path of one machine")
}

fn in_lock(line: &str) -> Option<&'static str> {
    let source = line.trim().strip_prefix("source = ")?.trim_matches('"');
    (source != DEFAULT_REGISTRY).then_some("a source other than the default registry")
}

fn in_manifest(line: &str) -> Option<&'static str> {
    let line = line.split('#').next().unwrap_or(line).trim();
    let key = line.split(['=', '.', ' ']).next().unwrap_or(line);
    let registry =
        ["registry", "registries", "[source", "index ="].iter().any(|word| line.contains(word));
    if registry {
        return Some("a package registry");
    }
    (line.contains("://") && !FOR_PEOPLE.contains(&key)).then_some("an address in a manifest")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        examine(&File::new(path, text)).len()
    }

    #[test]
    fn a_machines_path_is_flagged() {
        assert_eq!(found("docs/a.md", "see /home/ann/notes"), 1);
        assert_eq!(found("a/src/b.rs", "open(\"/root/x\")"), 1);
        assert_eq!(found("docs/a.md", "see target/work/x and https://example.com/home/x"), 0);
    }

    #[test]
    fn a_foreign_source_in_the_lock_file_is_flagged() {
        let foreign = "source = \"registry+https://mirror.example/index\"\n";
        assert_eq!(found("Cargo.lock", foreign), 1);
        assert_eq!(found("Cargo.lock", &format!("source = \"{DEFAULT_REGISTRY}\"\n")), 0);
    }

    #[test]
    fn a_registry_or_address_in_a_manifest_is_flagged() {
        assert_eq!(found("a/Cargo.toml", "x = { git = \"https://example.com/x\" }"), 1);
        assert_eq!(found(".cargo/config.toml", "[registries.mine]"), 1);
        assert_eq!(found("Cargo.toml", "repository = \"https://example.com/x\""), 0);
    }
}
