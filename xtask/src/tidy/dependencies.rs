//! Which crate may know which: core ← relay, inbox ← app; adapters know core alone; the test kit is
//! for tests. A border that nobody checks is crossed by the first convenient import.
//!
//! The facts come from `cargo metadata`. A package without a rule is a finding, so that a new crate
//! gets its place on purpose.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Finding;

const RULE: &str = "dependency";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev`, `build`, or nothing for a normal one.
    kind: Option<String>,
}

/// A package's place in the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Core,
    History,
    /// Relay and inbox.
    Engine,
    /// What watches from the outside: wrappers around the contracts of core.
    Telemetry,
    TestKit,
    /// Engines and adapters put together for functions that a cloud invokes.
    Functions,
    Facade,
    /// Procedural macros: they name the facade in what they write, and depend on nothing.
    Macros,
    /// The configuration file.
    Config,
    /// Stores and brokers.
    Adapter,
    /// A store's outbox in the transactions of another driver: `stores/postgres-sqlx` beside `stores/postgres`.
    Driver,
    App,
    /// What an application looks like: it sees what applications see.
    Example,
    /// End-to-end tests and benchmarks.
    Proof,
    Xtask,
}

impl Role {
    /// From the folder of the package, relative to the workspace.
    fn of(folder: &str) -> Option<Self> {
        Some(match folder {
            "crates/postrider-core" => Self::Core,
            "crates/postrider-history" => Self::History,
            "crates/postrider-relay" | "crates/postrider-inbox" => Self::Engine,
            "crates/postrider-otel" => Self::Telemetry,
            "crates/postrider-testkit" => Self::TestKit,
            "crates/postrider-lambda" => Self::Functions,
            "crates/postrider" => Self::Facade,
            "crates/postrider-derive" | "tests/refused/called" => Self::Macros,
            "crates/postrider-config" => Self::Config,
            "tests/aws"
            | "tests/brokers"
            | "tests/e2e"
            | "tests/fuzz"
            | "tests/postgres"
            | "tests/refused"
            | "benches"
            | "crates/postrider-sim" => Self::Proof,
            "xtask" => Self::Xtask,
            _ if folder.starts_with("stores/postgres-") => Self::Driver,
            _ => match folder.split_once('/')?.0 {
                "stores" | "brokers" => Self::Adapter,
                "examples" => Self::Example,
                "apps" => Self::App,
                _ => return None,
            },
        })
    }

    /// Roles that may stand in `[dependencies]` and `[build-dependencies]`.
    fn needs(self) -> &'static [Self] {
        match self {
            Self::Core | Self::Macros | Self::Xtask => &[],
            Self::History | Self::Engine | Self::Telemetry | Self::Adapter | Self::Config => {
                &[Self::Core]
            }
            Self::Driver => &[Self::Core, Self::Adapter],
            Self::TestKit => &[Self::Core, Self::History],
            Self::Functions => &[Self::Core, Self::Engine, Self::Adapter],
            Self::Facade => &[
                Self::Core,
                Self::Engine,
                Self::Telemetry,
                Self::Adapter,
                Self::Functions,
                Self::Macros,
            ],
            Self::App => &[
                Self::Core,
                Self::History,
                Self::Engine,
                Self::Telemetry,
                Self::Facade,
                Self::Adapter,
                Self::Config,
            ],
            Self::Example => &[Self::Facade],
            Self::Proof => &[
                Self::Core,
                Self::History,
                Self::Engine,
                Self::TestKit,
                Self::Facade,
                Self::Adapter,
                Self::Config,
            ],
        }
    }

    /// Roles that tests may use on top of `needs`.
    fn tests_need(self) -> &'static [Self] {
        match self {
            Self::Core
            | Self::History
            | Self::TestKit
            | Self::Config
            | Self::Macros
            | Self::Xtask => &[],
            Self::Telemetry => {
                &[Self::History, Self::TestKit, Self::Adapter, Self::Engine, Self::Facade]
            }
            Self::Adapter | Self::Driver => &[Self::History, Self::TestKit],
            Self::Engine | Self::Functions | Self::Facade | Self::App | Self::Example => {
                &[Self::History, Self::TestKit, Self::Adapter, Self::Engine]
            }
            Self::Proof => &[Self::Macros],
        }
    }
}

/// Judges what `cargo metadata` said.
pub(super) fn examine(metadata: &str) -> Result<Vec<Finding>, String> {
    let metadata: Metadata = serde_json::from_str(metadata)
        .map_err(|error| format!("cargo metadata cannot be read: {error}"))?;
    Ok(judge(&metadata))
}

fn judge(metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut roles = BTreeMap::new();
    for package in &metadata.packages {
        let folder = folder(package, &metadata.workspace_root);
        match Role::of(&folder) {
            Some(role) => {
                roles.insert(package.name.as_str(), role);
            }
            None => findings.push(Finding::whole(
                &format!("{folder}/Cargo.toml"),
                RULE,
                "no rule says what this package may depend on; give it one in xtask",
            )),
        }
    }
    for package in &metadata.packages {
        let Some(role) = roles.get(package.name.as_str()) else {
            continue;
        };
        let manifest = format!("{}/Cargo.toml", folder(package, &metadata.workspace_root));
        for dependency in &package.dependencies {
            let Some(target) = roles.get(dependency.name.as_str()) else {
                continue;
            };
            let test = dependency.kind.as_deref() == Some("dev");
            let allowed =
                role.needs().contains(target) || (test && role.tests_need().contains(target));
            if !allowed {
                let kind = if test { " (dev)" } else { "" };
                let message =
                    format!("{} may not depend on {}{kind}", package.name, dependency.name);
                findings.push(Finding::whole(&manifest, RULE, message));
            }
        }
    }
    findings
}

fn folder(package: &Package, root: &str) -> String {
    let manifest = package.manifest_path.replace('\\', "/");
    let inside = manifest.strip_prefix(&root.replace('\\', "/")).unwrap_or(&manifest);
    inside.trim_matches('/').trim_end_matches("/Cargo.toml").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace of (folder, name) with one dependency of the first on the second.
    fn found(from: (&str, &str), to: (&str, &str), kind: Option<&str>) -> Vec<String> {
        let package = |(folder, name): (&str, &str), dependencies| Package {
            name: name.to_owned(),
            manifest_path: format!("/w/{folder}/Cargo.toml"),
            dependencies,
        };
        let dependency = Dependency { name: to.1.to_owned(), kind: kind.map(str::to_owned) };
        let metadata = Metadata {
            packages: vec![package(from, vec![dependency]), package(to, vec![])],
            workspace_root: "/w".to_owned(),
        };
        judge(&metadata).into_iter().map(|finding| finding.message).collect()
    }

    const CORE: (&str, &str) = ("crates/postrider-core", "postrider-core");
    const RELAY: (&str, &str) = ("crates/postrider-relay", "postrider-relay");
    const TESTKIT: (&str, &str) = ("crates/postrider-testkit", "postrider-testkit");
    const SQLITE: (&str, &str) = ("stores/sqlite", "postrider-sqlite");
    const LOCAL: (&str, &str) = ("brokers/local", "postrider-local");
    const APP: (&str, &str) = ("apps/postrider", "postrider-cli");
    const E2E: (&str, &str) = ("tests/e2e", "postrider-e2e");
    const XTASK: (&str, &str) = ("xtask", "xtask");

    #[test]
    fn crossed_borders_are_flagged() {
        for (from, to, kind) in [
            (CORE, RELAY, None),
            (RELAY, SQLITE, None),
            (SQLITE, LOCAL, None),
            (SQLITE, LOCAL, Some("dev")),
            (SQLITE, RELAY, None),
            (SQLITE, TESTKIT, None),
            (SQLITE, TESTKIT, Some("build")),
            (APP, TESTKIT, None),
            (RELAY, XTASK, None),
            (E2E, APP, None),
        ] {
            assert_eq!(found(from, to, kind).len(), 1, "{} on {}", from.1, to.1);
        }
    }

    #[test]
    fn what_the_picture_shows_is_allowed() {
        for (from, to, kind) in [
            (RELAY, CORE, None),
            (SQLITE, CORE, None),
            (SQLITE, TESTKIT, Some("dev")),
            (RELAY, SQLITE, Some("dev")),
            (APP, RELAY, None),
            (E2E, TESTKIT, None),
        ] {
            assert_eq!(found(from, to, kind), [""; 0], "{} on {}", from.1, to.1);
        }
    }

    #[test]
    fn a_package_without_a_place_is_flagged() {
        let stranger = ("crates/stranger", "stranger");
        assert_eq!(found(stranger, CORE, None).len(), 1);
    }
}
