//! Rust text taken apart as far as the rules need it: code, comments, string literals, functions.
//!
//! Code keeps its place but loses the content of comments and literals, so a rule that looks for a
//! word in code cannot be fooled by a sentence about that word.

/// One line, split.
#[derive(Debug, Default, Clone)]
pub(crate) struct Line {
    /// What the compiler sees, with empty literals.
    pub(crate) code: String,
    /// The comment on this line with its slashes, empty where there is none.
    pub(crate) comment: String,
}

/// A string literal and the line (from 0) where it begins.
#[derive(Debug)]
pub(crate) struct Literal {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A function with a body; lines count from 0, `last` is the line of its closing brace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) public: bool,
}

/// A Rust file taken apart.
pub(crate) struct Lexed {
    pub(crate) lines: Vec<Line>,
    pub(crate) literals: Vec<Literal>,
    /// First and last lines of `#[cfg(test)]` items.
    test_blocks: Vec<(usize, usize)>,
}

impl Lexed {
    pub(crate) fn new(text: &str) -> Self {
        let mut lexer = Lexer {
            chars: text.chars().collect(),
            at: 0,
            lines: vec![Line::default()],
            literals: Vec::new(),
        };
        while lexer.at < lexer.chars.len() {
            lexer.step();
        }
        let mut lexed =
            Self { lines: lexer.lines, literals: lexer.literals, test_blocks: Vec::new() };
        lexed.test_blocks = (0..lexed.lines.len())
            .filter(|line| lexed.lines[*line].code.trim_start().starts_with("#[cfg(test)]"))
            .filter_map(|line| Some((line, lexed.end_of_block(line)?)))
            .collect();
        lexed
    }

    /// Functions with bodies, in the order in which they begin; inner ones follow their outer one.
    pub(crate) fn functions(&self) -> Vec<Function> {
        (0..self.lines.len())
            .filter_map(|first| {
                let (name, public) = signature(&self.lines[first].code)?;
                Some(Function { name, first, last: self.end_of_block(first)?, public })
            })
            .collect()
    }

    /// Whether the line belongs to a `#[cfg(test)]` item.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_blocks.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    /// The line of the brace that closes the first block after `first`; `None` where a semicolon
    /// ends the item before any block begins.
    fn end_of_block(&self, first: usize) -> Option<usize> {
        let (mut braces, mut brackets) = (0usize, 0usize);
        for (number, line) in self.lines.iter().enumerate().skip(first) {
            for symbol in line.code.chars() {
                match symbol {
                    '(' | '[' => brackets += 1,
                    ')' | ']' => brackets = brackets.saturating_sub(1),
                    ';' if braces == 0 && brackets == 0 => return None,
                    '{' => braces += 1,
                    '}' => {
                        braces = braces.saturating_sub(1);
                        if braces == 0 {
                            return Some(number);
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }
}

/// Name and visibility, if the line begins a function.
fn signature(code: &str) -> Option<(String, bool)> {
    let mut rest = code.trim_start();
    let mut public = false;
    if let Some(after) = rest.strip_prefix("pub") {
        public = true;
        rest = match after.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => after,
        }
        .trim_start();
    }
    for modifier in ["default ", "const ", "async ", "unsafe ", "extern \"\" "] {
        rest = rest.strip_prefix(modifier).unwrap_or(rest);
    }
    let name: String = rest
        .strip_prefix("fn ")?
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some((name, public))
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    lines: Vec<Line>,
    literals: Vec<Literal>,
}

impl Lexer {
    fn step(&mut self) {
        if self.ahead("//") {
            while self.at < self.chars.len() && self.chars[self.at] != '\n' {
                self.take_comment();
            }
        } else if self.ahead("/*") {
            self.block_comment();
        } else if let Some((prefix, hashes)) = self.raw_string() {
            self.at += prefix;
            self.string(Some(hashes));
        } else if self.chars[self.at] == '"' {
            self.at += 1;
            self.string(None);
        } else if self.chars[self.at] == '\'' {
            self.quote();
        } else {
            self.take_code();
        }
    }

    fn ahead(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.chars.get(self.at + i) == Some(&c))
    }

    fn line(&mut self) -> &mut Line {
        self.lines.last_mut().expect("invariant: there is always a line")
    }

    fn take_code(&mut self) {
        let symbol = self.chars[self.at];
        self.at += 1;
        if symbol == '\n' {
            self.lines.push(Line::default());
        } else {
            self.line().code.push(symbol);
        }
    }

    fn take_comment(&mut self) {
        let symbol = self.chars[self.at];
        self.at += 1;
        if symbol == '\n' {
            self.lines.push(Line::default());
        } else {
            self.line().comment.push(symbol);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0usize;
        while self.at < self.chars.len() {
            if self.ahead("/*") {
                depth += 1;
                self.take_comment();
            } else if self.ahead("*/") {
                depth -= 1;
                self.take_comment();
            }
            self.take_comment();
            if depth == 0 {
                break;
            }
        }
    }

    /// Length of the opening (`r##"`) and number of hashes, if a raw string begins here.
    fn raw_string(&self) -> Option<(usize, usize)> {
        let inside_word = self.at > 0 && {
            let before = self.chars[self.at - 1];
            before.is_alphanumeric() || before == '_'
        };
        if inside_word {
            return None;
        }
        let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
            self.ahead(prefix) && matches!(self.chars.get(self.at + prefix.len()), Some('#' | '"'))
        })?;
        let hashes = self.chars[self.at + prefix.len()..].iter().take_while(|c| **c == '#').count();
        let opening = prefix.len() + hashes;
        (self.chars.get(self.at + opening) == Some(&'"')).then_some((opening + 1, hashes))
    }

    /// The rest of a string, after its opening quote.
    fn string(&mut self, hashes: Option<usize>) {
        let closing = format!("\"{}", "#".repeat(hashes.unwrap_or(0)));
        let line = self.lines.len() - 1;
        let mut text = String::new();
        self.line().code.push('"');
        while self.at < self.chars.len() && !self.ahead(&closing) {
            let symbol = self.chars[self.at];
            text.push(symbol);
            self.at += 1;
            if symbol == '\n' {
                self.lines.push(Line::default());
            } else if symbol == '\\' && hashes.is_none() && !self.ahead("\n") {
                text.extend(self.chars.get(self.at));
                self.at += 1;
            }
        }
        self.at += closing.len();
        self.line().code.push('"');
        self.literals.push(Literal { line, text });
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let escaped = self.chars.get(self.at + 1) == Some(&'\\');
        let length = if escaped {
            // The escaped character itself may be a quote.
            self.chars[(self.at + 3).min(self.chars.len())..]
                .iter()
                .position(|c| *c == '\'')
                .map(|position| position + 4)
        } else {
            (self.chars.get(self.at + 2) == Some(&'\'')).then_some(3)
        };
        match length {
            Some(length) => {
                self.line().code.push_str("''");
                self.at += length;
            }
            None => self.take_code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_leave_the_code() {
        let lexed = Lexed::new(
            "let a = \"// no\"; // yes \"b\"\nlet c = '\"'; /* d\n */ let e = r#\"f\"g\"#;",
        );
        assert_eq!(lexed.lines[0].code, "let a = \"\"; ");
        assert_eq!(lexed.lines[0].comment, "// yes \"b\"");
        assert_eq!(lexed.lines[1].code, "let c = ''; ");
        assert_eq!(lexed.lines[2].code, " let e = \"\";");
        let texts: Vec<&str> = lexed.literals.iter().map(|l| l.text.as_str()).collect();
        assert_eq!(texts, ["// no", "f\"g"]);
        assert_eq!(lexed.literals[1].line, 2);
    }

    #[test]
    fn lifetimes_and_escaped_quotes_open_no_literal() {
        let lexed = Lexed::new("fn a<'b>(c: &'b str) { d('\\''); e(\"\\\"f\"); }");
        assert_eq!(lexed.lines[0].code, "fn a<'b>(c: &'b str) { d(''); e(\"\"); }");
        assert_eq!(lexed.literals.len(), 1);
    }

    #[test]
    fn functions_end_at_their_own_brace_and_declarations_have_none() {
        let text = "trait T {\n    fn a(&self) -> [u8; 2];\n    async fn b() {\n        if x { \"}\"; }\n    }\n}\npub(crate) const fn c(\n    d: u8,\n) {\n}\n";
        let found: Vec<(String, usize, usize)> =
            Lexed::new(text).functions().into_iter().map(|f| (f.name, f.first, f.last)).collect();
        assert_eq!(found, [("b".to_owned(), 2, 4), ("c".to_owned(), 6, 9)]);
    }

    #[test]
    fn blocks_of_tests_are_known() {
        let lexed =
            Lexed::new("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n");
        let inside: Vec<bool> = (0..6).map(|line| lexed.is_test_line(line)).collect();
        assert_eq!(inside, [false, true, true, true, true, false]);
    }
}
