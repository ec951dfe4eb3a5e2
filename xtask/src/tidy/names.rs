//! Names that say nothing are refused: what is everybody's drawer is nobody's concept.
//!
//! Only names that we give are looked at (files, folders, definitions), so that a foreign
//! `ConnectionManager` may be used where it is needed. Unfinished code is named here as well.

use super::Finding;
use crate::tree::File;

const RULE: &str = "name";
const BANNED: [&str; 8] =
    ["util", "utils", "utility", "utilities", "common", "manager", "helper", "helpers"];
/// Words after which code gives a name.
const DEFINING: [&str; 9] =
    ["fn", "struct", "enum", "trait", "mod", "type", "const", "static", "macro_rules"];

pub(super) fn examine(file: &File) -> Vec<Finding> {
    let Some(lexed) = &file.lexed else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for part in file.path.split('/') {
        if let Some(word) = banned(part.trim_end_matches(".rs")) {
            findings.push(Finding::whole(
                &file.path,
                RULE,
                format!("`{word}` in a path: name the noun that lives there"),
            ));
        }
    }
    for (index, line) in lexed.lines.iter().enumerate() {
        for name in defined(&line.code) {
            if let Some(word) = banned(name) {
                let message = format!("`{word}` in `{name}`: say what it is or does");
                findings.push(Finding::at(file, index, RULE, message));
            }
        }
        if line.code.contains("todo!") || line.code.contains("unimplemented!") {
            findings.push(Finding::at(file, index, RULE, "unfinished code"));
        }
    }
    findings
}

/// Names that the line defines.
fn defined(code: &str) -> Vec<&str> {
    let words: Vec<&str> = code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    words.windows(2).filter(|pair| DEFINING.contains(&pair[0])).map(|pair| pair[1]).collect()
}

/// The first banned word of a snake-case or camel-case name.
fn banned(name: &str) -> Option<String> {
    let mut words = vec![String::new()];
    for symbol in name.chars() {
        if symbol.is_uppercase() || matches!(symbol, '_' | '-' | '.') {
            words.push(String::new());
        }
        if symbol.is_alphanumeric() {
            let word = words.last_mut().expect("invariant: never empty");
            word.extend(symbol.to_lowercase());
        }
    }
    // A name in capitals falls into letters; its parts are what stands between underscores.
    words.extend(name.to_lowercase().split(['_', '-', '.']).map(str::to_owned));
    words.into_iter().find(|word| BANNED.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_flagged_in_paths_and_definitions() {
        let drawer = File::new("a/src/utils.rs", "//! x\n");
        assert_eq!(examine(&drawer).len(), 1);
        let code = "struct LeaseManager;\nfn publish_helper() {}\nconst COMMON_LIMIT: u8 = 1;\nmod common;\n";
        assert_eq!(examine(&File::new("a/src/lease.rs", code)).len(), 4);
    }

    #[test]
    fn foreign_names_and_sentences_are_left_alone() {
        let code = "// The common case.\nlet x = redis::ConnectionManager::new(\"helper\");\nfn communal() {}\n";
        assert_eq!(examine(&File::new("a/src/lease.rs", code)), []);
    }

    #[test]
    fn unfinished_code_is_flagged() {
        let file = File::new("a/src/lease.rs", "fn a() { todo!() }\n// todo! in a comment\n");
        assert_eq!(examine(&file).len(), 1);
    }
}
