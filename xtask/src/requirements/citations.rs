//! Which tests cite which requirement or fault.
//!
//! A test cites in the comments directly above it. A case of a contract suite also cites inside its
//! body, and counts once a crate runs the suite: a case that nobody runs proves nothing. An ignored
//! test proves nothing either.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexed::{Function, Lexed};
use crate::tree::File;

/// Where the cases of the suites stand; `source.rs` or `source/…` in it belong to `source_suite!`.
const SUITES: &str = "crates/postrider-testkit/src/suite/";

/// A test that cites.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proof {
    pub(super) name: String,
    pub(super) path: String,
    /// For a case of a suite: the suite's macro and the packages that run it.
    pub(super) suite: Option<(String, Vec<String>)>,
}

/// Every cited id with its tests, both sorted.
pub(super) fn collect(files: &[File]) -> BTreeMap<String, Vec<Proof>> {
    let mut proofs: BTreeMap<String, BTreeSet<Proof>> = BTreeMap::new();
    // A suite has hundreds of cases, and who runs it stands anywhere in the tree.
    let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_compile_case()) {
        let Some(lexed) = &file.lexed else { continue };
        for function in lexed.functions() {
            let head = Head::above(lexed, function.first);
            let suite = suite_of(&file.path).filter(|_| function.public);
            let mut comments = head.comments;
            let suite = match suite {
                Some(suite) => {
                    let find = || runners(files, &suite);
                    let runners = known.entry(suite.clone()).or_insert_with(find).clone();
                    if runners.is_empty() {
                        continue;
                    }
                    comments.push_str(&inside(lexed, &function));
                    Some((suite, runners))
                }
                None if head.test && !head.ignored => None,
                None => continue,
            };
            for id in ids(&comments) {
                proofs.entry(id).or_default().insert(Proof {
                    name: function.name.clone(),
                    path: file.path.clone(),
                    suite: suite.clone(),
                });
            }
        }
    }
    proofs.into_iter().map(|(id, tests)| (id, tests.into_iter().collect())).collect()
}

/// Comments and attributes that stand directly above a function.
#[derive(Default)]
struct Head {
    comments: String,
    test: bool,
    ignored: bool,
}

impl Head {
    fn above(lexed: &Lexed, first: usize) -> Self {
        let mut head = Self::default();
        let mut inside_attribute = false;
        for line in lexed.lines[..first].iter().rev() {
            let code = line.code.trim();
            if code.is_empty() && line.comment.is_empty() {
                break;
            }
            head.comments.push_str(&line.comment);
            head.comments.push('\n');
            if code.is_empty() {
                continue;
            }
            // From below, an attribute of several lines is met at its closing bracket first.
            if !inside_attribute && !code.ends_with(']') {
                break;
            }
            inside_attribute = !code.starts_with("#[");
            if let Some(attribute) = code.strip_prefix("#[") {
                let path = attribute.split(['(', ']', ' ']).next().unwrap_or("");
                head.test |= path == "test" || path.ends_with("::test");
                head.ignored |= path == "ignore";
            }
        }
        head
    }
}

fn inside(lexed: &Lexed, function: &Function) -> String {
    lexed.lines[function.first..=function.last]
        .iter()
        .flat_map(|line| [line.comment.as_str(), "\n"])
        .collect()
}

/// The macro of the suite to which a file of cases belongs.
fn suite_of(path: &str) -> Option<String> {
    let inside = path.strip_prefix(SUITES)?;
    let name = inside.split(['/', '.']).next()?;
    Some(format!("{name}_suite"))
}

/// Packages that invoke the macro, by name.
fn runners(files: &[File], suite: &str) -> Vec<String> {
    let call = format!("{suite}!");
    let names: BTreeSet<String> = files
        .iter()
        .filter(|file| {
            file.lexed
                .as_ref()
                .is_some_and(|lexed| lexed.lines.iter().any(|line| line.code.contains(&call)))
        })
        .filter_map(|file| package(files, &file.path))
        .collect();
    names.into_iter().collect()
}

/// The name of the package that a file belongs to.
fn package(files: &[File], path: &str) -> Option<String> {
    let manifest = files
        .iter()
        .filter(|file| {
            file.path
                .strip_suffix("Cargo.toml")
                .is_some_and(|folder| !folder.is_empty() && path.starts_with(folder))
        })
        .max_by_key(|file| file.path.len())?;
    let name = manifest.text.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(name.trim_matches('"').to_owned())
}

/// Ids in a comment: `R` with three digits, `F` with one or two, standing alone.
fn ids(comments: &str) -> BTreeSet<String> {
    comments
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| {
            let number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
            match word.split_at_checked(1) {
                Some(("R", digits)) => digits.len() == 3 && number(digits),
                Some(("F", digits)) => matches!(digits.len(), 1 | 2) && number(digits),
                _ => false,
            }
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(code: &str) -> Vec<String> {
        collect(&[File::new("a/tests/b.rs", code)]).into_keys().collect()
    }

    #[test]
    fn a_test_cites_in_the_comments_above_it() {
        let code = "/// R031, F9: the ack is lost.\n// R005 too.\n#[tokio::test(\n    flavor = \"multi_thread\",\n)]\nasync fn a_lost_ack_is_repeated() {\n    // R099\n}\n";
        assert_eq!(cited(code), ["F9", "R005", "R031"]);
    }

    #[test]
    fn what_is_no_test_or_ignored_proves_nothing() {
        assert_eq!(cited("/// R031\nfn a() {}\n"), [""; 0]);
        assert_eq!(cited("/// R031\n#[test]\n#[ignore = \"slow\"]\nfn a() {}\n"), [""; 0]);
        assert_eq!(cited("/// R031\nconst A: u8 = 1;\n#[test]\nfn a() {}\n"), [""; 0]);
        assert_eq!(cited("/// XR031 R31 R0310 FF1\n#[test]\nfn a() {}\n"), [""; 0]);
    }

    #[test]
    fn a_suites_case_counts_where_a_crate_runs_it() {
        let case = File::new(
            "crates/postrider-testkit/src/suite/source.rs",
            "/// R010\npub async fn order(s: &S) {\n    // R118: ids out of order.\n}\n",
        );
        let manifest = File::new("stores/a/Cargo.toml", "[package]\nname = \"store-a\"\n");
        let run = File::new("stores/a/tests/suite.rs", "postrider_testkit::source_suite!(A);\n");
        let definition = File::new("crates/x/src/lib.rs", "macro_rules! source_suite {}\n");
        let proofs = collect(&[case, manifest, run, definition]);
        let ids: Vec<&String> = proofs.keys().collect();
        assert_eq!(ids, ["R010", "R118"]);
        let suite = proofs["R010"][0].suite.as_ref().expect("a suite");
        assert_eq!(suite, &("source_suite".to_owned(), vec!["store-a".to_owned()]));
    }

    #[test]
    fn a_suites_case_that_nobody_runs_proves_nothing() {
        let case = File::new(
            "crates/postrider-testkit/src/suite/source.rs",
            "/// R010\npub async fn order(s: &S) {}\n",
        );
        assert!(collect(&[case]).is_empty());
    }
}
