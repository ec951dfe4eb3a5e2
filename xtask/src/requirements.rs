//! `cargo x requirements`: docs/requirements.md, which says of each requirement whether it is met
//! and which tests prove it.
//!
//! A test proves what its doc comment cites (`/// R031: …`). Nothing is met because somebody says
//! so: the page is made from the tests, and `--check` fails where it is not up to date.

mod citations;
mod page;
mod rows;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use self::citations::Proof;
use self::rows::Section;
use crate::step::Verdict;
use crate::tree;

const PAGE: &str = "docs/requirements.md";

/// The command.
pub(crate) fn run(root: &Path, check: bool) -> ExitCode {
    let outcome = if check { verdict(root) } else { write(root) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("requirements: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// `Err` where the page is not what the tests say.
pub(crate) fn verdict(root: &Path) -> Verdict {
    let present = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    if present == render(root)? {
        Ok(())
    } else {
        Err(format!("{PAGE} is out of date; `cargo x requirements` writes it"))
    }
}

fn write(root: &Path) -> Verdict {
    let text = render(root)?;
    fs::write(root.join(PAGE), &text)
        .map_err(|error| format!("{PAGE} cannot be written: {error}"))?;
    println!("{PAGE}: {}", page::count_line(&text));
    Ok(())
}

fn render(root: &Path) -> Result<String, String> {
    let requirements = rows::sections(&read(root, "xtask/requirements.txt")?, 'R')?;
    let faults = rows::sections(&read(root, "xtask/faults.txt")?, 'F')?;
    let partial = rows::partial(&read(root, "xtask/partial.txt")?)?;
    let files =
        tree::read(root).map_err(|error| format!("the work tree cannot be read: {error}"))?;
    let proofs = citations::collect(&files);
    known(&requirements, &faults, &proofs, &partial)?;
    Ok(page::render(&requirements, &faults, &proofs, &partial))
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path} cannot be read: {error}"))
}

/// A citation of a number that does not exist is a slip of the pen that would go unseen.
fn known(
    requirements: &[Section],
    faults: &[Section],
    proofs: &BTreeMap<String, Vec<Proof>>,
    partial: &BTreeMap<String, String>,
) -> Verdict {
    let ids: Vec<&str> = requirements
        .iter()
        .chain(faults)
        .flat_map(|section| section.rows.iter().map(|row| row.id.as_str()))
        .collect();
    if let Some(id) = partial.keys().find(|id| !ids.contains(&id.as_str())) {
        return Err(format!("xtask/partial.txt: there is no {id}"));
    }
    match proofs.iter().find(|(id, _)| !ids.contains(&id.as_str())) {
        Some((id, proofs)) => Err(format!(
            "{}: `{}` cites {id}, which does not exist",
            proofs[0].path, proofs[0].name
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::File;

    #[test]
    fn a_citation_of_nothing_is_refused() {
        let rows = rows::sections("## A\nR001 text\n", 'R').expect("rows");
        let cite = |id: &str| {
            let code = format!("/// {id}: x\n#[test]\nfn a_test() {{}}\n");
            citations::collect(&[File::new("a/tests/b.rs", &code)])
        };
        let none = BTreeMap::new();
        assert!(known(&rows, &[], &cite("R002"), &none).is_err());
        assert!(known(&rows, &[], &cite("R001"), &none).is_ok());
        let partial = BTreeMap::from([("R009".to_owned(), "x".to_owned())]);
        assert!(known(&rows, &[], &none_cited(), &partial).is_err());
    }

    fn none_cited() -> BTreeMap<String, Vec<Proof>> {
        BTreeMap::new()
    }

    #[test]
    fn every_row_of_the_files_is_there_once() {
        let root = tree::root();
        for (path, letter, last) in
            [("xtask/requirements.txt", 'R', 126), ("xtask/faults.txt", 'F', 41)]
        {
            let text = read(&root, path).expect("the file is checked in");
            let rows: usize = rows::sections(&text, letter)
                .expect("it can be read")
                .iter()
                .map(|section| section.rows.len())
                .sum();
            assert_eq!(rows, last, "{path}");
        }
    }
}
