//! What the compiler said: its messages as a text that is the same on every machine.
//!
//! Kept is the level, the code, each place in the case with its label, notes, and what is suggested. Of other files of
//! ours their names are kept, since places in them move with every change, and of files of others nothing.

use serde::Deserialize;

/// One message, and those below it.
#[derive(Deserialize)]
pub(crate) struct Message {
    message: String,
    level: String,
    code: Option<Code>,
    spans: Vec<Span>,
    children: Vec<Message>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: usize,
    column_start: usize,
    is_primary: bool,
    label: Option<String>,
    suggested_replacement: Option<String>,
}

/// The text of all messages that `lines` hold, in their order, where the case is the file `case`.
pub(crate) fn text(lines: &str, case: &str) -> Result<String, String> {
    let mut text = String::new();
    for line in lines.lines() {
        let message: Message = serde_json::from_str(line)
            .map_err(|error| format!("the compiler said {line:?}, which is no message: {error}"))?;
        // How many there were, and where to read more.
        let closing = message.level == "failure-note" || message.message.starts_with("aborting");
        if !closing {
            message.write(case, "", &mut text);
        }
    }
    Ok(text)
}

impl Message {
    fn write(&self, case: &str, indent: &str, text: &mut String) {
        let code = self.code.as_ref().filter(|code| code.code.starts_with('E'));
        let code = code.map_or_else(String::new, |code| format!("[{}]", code.code));
        let message = self.message.replace('\n', &format!("\n{indent}    "));
        text.push_str(&format!("{indent}{}{code}: {message}\n", self.level));
        for span in &self.spans {
            if span.file_name != case {
                // The compiler is started where ours have short names.
                if std::path::Path::new(&span.file_name).is_relative() {
                    text.push_str(&format!("{indent}  in {}\n", span.file_name));
                }
                continue;
            }
            let mark = if span.is_primary { "at" } else { "see" };
            let place = format!("{mark} {}:{}", span.line_start, span.column_start);
            text.push_str(&format!("{indent}  {place}"));
            for said in span.label.iter().chain(&span.suggested_replacement) {
                text.push_str(&format!(" {}", said.trim_end().replace('\n', "⏎")));
            }
            text.push('\n');
        }
        let deeper = format!("{indent}  ");
        for child in &self.children {
            child.write(case, &deeper, text);
        }
    }
}
