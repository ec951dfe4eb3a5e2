//! `cargo x docs`: the reference pages that the program writes about itself.
//!
//! The pages under docs/reference that begin with the generator's mark, and those of its folders, are
//! the program's own words. `--check` fails where one differs, is missing, or is left over.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::step::{self, Verdict};

/// Where the pages stand.
const PAGES: &str = "docs/reference";

/// What every generated page holds, apart from those in [`FOLDERS`].
const MARK: &str = "<!-- Made by `cargo x docs`.";

/// Folders whose files are all generated.
const FOLDERS: [&str; 1] = ["errors"];

/// The command.
pub(crate) fn run(root: &Path, check: bool) -> ExitCode {
    let outcome = if check { verdict(root) } else { write(root) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("docs: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// `Err` where a page is not what the program says.
pub(crate) fn verdict(root: &Path) -> Verdict {
    let (made, found) = (generate(root)?, present(root)?);
    let stale = differing(&made, &found);
    match stale.first() {
        None => Ok(()),
        Some(first) => Err(format!(
            "{} of {} pages are out of date, like {PAGES}/{first}; `cargo x docs` writes them",
            stale.len(),
            made.len()
        )),
    }
}

fn write(root: &Path) -> Verdict {
    let (made, found) = (generate(root)?, present(root)?);
    for name in differing(&made, &found) {
        let path = root.join(PAGES).join(&name);
        let outcome = match made.get(&name) {
            Some(text) => fs::create_dir_all(path.parent().unwrap_or(root))
                .and_then(|()| fs::write(&path, text)),
            None => fs::remove_file(&path),
        };
        outcome.map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{PAGES}/{name}");
    }
    Ok(())
}

/// The names whose text is not the same on both sides.
fn differing(made: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> Vec<String> {
    let mut names: Vec<String> = made.keys().chain(found.keys()).cloned().collect();
    names.sort();
    names.dedup();
    names.retain(|name| made.get(name) != found.get(name));
    names
}

/// What the program writes, by its path below the pages' folder.
fn generate(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let folder = root.join("target/docs-reference");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    // As the gate builds it for the end-to-end tests, so that it is built once.
    step::complete(&mut step::cargo(root, &crate::test::BUILD))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| root.join("target"));
    let program = target.join("debug").join(format!("postrider{}", std::env::consts::EXE_SUFFIX));
    step::complete(Command::new(program).args(["generate", "--dir"]).arg(&folder))?;
    let mut pages = BTreeMap::new();
    collect(&folder, &folder, &mut |_, _| true, &mut pages)?;
    Ok(pages)
}

/// The generated pages that are checked in.
fn present(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let folder = root.join(PAGES);
    let mut pages = BTreeMap::new();
    let mut generated = |name: &str, text: &str| {
        let inside = name.split_once('/').is_some_and(|(first, _)| FOLDERS.contains(&first));
        inside || text.contains(MARK)
    };
    collect(&folder, &folder, &mut generated, &mut pages)?;
    Ok(pages)
}

fn collect(
    folder: &Path,
    base: &Path,
    wanted: &mut dyn FnMut(&str, &str) -> bool,
    pages: &mut BTreeMap<String, String>,
) -> Verdict {
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, error))?;
    let paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    for path in paths {
        if path.is_dir() {
            collect(&path, base, wanted, pages)?;
            continue;
        }
        let name = path.strip_prefix(base).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
        if wanted(&name, &text) {
            pages.insert(name, text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_page_that_differs_is_missing_or_left_over_is_stale() {
        let made = pages(&[("a.md", "1"), ("b.md", "2"), ("c.md", "3")]);
        let found = pages(&[("a.md", "1"), ("b.md", "other"), ("d.md", "4")]);
        assert_eq!(differing(&made, &found), ["b.md", "c.md", "d.md"]);
        assert!(differing(&made, &made).is_empty());
    }
}
