//! SQL of stores and brokers stands in `.sql` files, one per named operation, where a database
//! person can read and explain it. In Rust it would be hidden among the code that binds it.

use super::Finding;
use crate::tree::File;

const RULE: &str = "sql";

pub(super) fn examine(file: &File) -> Vec<Finding> {
    let Some(lexed) = &file.lexed else {
        return Vec::new();
    };
    let parts: Vec<&str> = file.path.split('/').collect();
    let adapter = matches!(parts.first(), Some(&"stores" | &"brokers"));
    if !adapter || parts.get(2) != Some(&"src") || file.is_test() {
        return Vec::new();
    }
    lexed
        .literals
        .iter()
        .filter(|literal| !lexed.is_test_line(literal.line) && is_statement(&literal.text))
        .map(|literal| {
            let message = "SQL in a string; move it to a `.sql` file and load it with include_str!";
            Finding::at(file, literal.line, RULE, message)
        })
        .collect()
}

/// Whether the text begins as a statement does. The second word keeps sentences such as "update
/// failed" or "create the folder" apart. Pragmas and the border of a transaction are no operations.
fn is_statement(text: &str) -> bool {
    // Escapes stand in the literal as they are written; to a database they are white space.
    let lower = text.to_lowercase().replace("\\n", " ").replace("\\t", " ").replace('\\', " ");
    let mut words = lower.split_whitespace();
    let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    match first {
        "select" => !second.is_empty(),
        "insert" | "replace" => matches!(second, "into" | "or"),
        "delete" => second == "from",
        "update" => lower.contains(" set ") || lower.contains("\nset ") || second == "or",
        "with" => lower.contains("select "),
        "create" | "drop" | "alter" => {
            ["table", "index", "unique", "view", "trigger", "temp", "temporary", "virtual"]
                .contains(&second)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, code: &str) -> usize {
        examine(&File::new(path, code)).len()
    }

    #[test]
    fn a_statement_in_a_string_is_flagged() {
        let path = "stores/sqlite/src/fetch.rs";
        assert_eq!(found(path, "execute(\"SELECT seq FROM outbox\")"), 1);
        assert_eq!(found(path, "execute(\"\\n update a\nset b = 1\")"), 1);
        assert_eq!(found(path, "execute(r\"create table a (b)\")"), 1);
        assert_eq!(found("brokers/local/src/lib.rs", "x(\"delete from a\")"), 1);
    }

    #[test]
    fn sentences_transactions_and_tests_are_left_alone() {
        let path = "stores/sqlite/src/fetch.rs";
        let code = "x(\"update failed\"); x(\"create the file\"); x(\"pragma user_version\"); x(\"begin immediate\")";
        assert_eq!(found(path, code), 0);
        assert_eq!(
            found(path, "#[cfg(test)]\nmod tests {\n    const A: &str = \"select 1\";\n}\n"),
            0
        );
        assert_eq!(found("stores/sqlite/tests/a.rs", "x(\"select 1\")"), 0);
        assert_eq!(found("crates/postrider-relay/src/a.rs", "x(\"select 1\")"), 0);
    }
}
