//! The rows that the page is about, as they stand in text files beside this crate: one a line,
//! numbered from 1 without a gap.

use std::collections::BTreeMap;

/// A requirement or a fault.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) text: String,
}

/// Rows under one title, which is empty where the file has none.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
}

/// Reads `<letter><number> <text>` lines with `## <title>` between them.
pub(super) fn sections(text: &str, letter: char) -> Result<Vec<Section>, String> {
    let mut sections: Vec<Section> = Vec::new();
    let mut expected = 1;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push(Section { title: title.to_owned(), rows: Vec::new() });
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (id, text) = line.split_once(' ').ok_or_else(|| format!("`{line}` has no text"))?;
        let number = id.strip_prefix(letter).and_then(|number| number.parse::<u32>().ok());
        if number != Some(expected) {
            return Err(format!("`{id}` stands where {letter}{expected} should"));
        }
        expected += 1;
        if sections.is_empty() {
            sections.push(Section::default());
        }
        let section = sections.last_mut().expect("invariant: there is a section");
        section.rows.push(Row { id: id.to_owned(), text: text.to_owned() });
    }
    Ok(sections)
}

/// Reads `<id>: <what is missing>` lines.
pub(super) fn partial(text: &str) -> Result<BTreeMap<String, String>, String> {
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| match line.split_once(": ") {
            Some((id, missing)) => Ok((id.trim().to_owned(), missing.trim().to_owned())),
            None => Err(format!("xtask/partial.txt: `{line}` says not what is missing")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_under_their_titles() {
        let sections = sections("# x\n## A\nR001 a\nR002 b c\n## B\nR003 d\n", 'R').expect("rows");
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[0].rows[1].text, "b c");
        assert_eq!(sections[1].title, "B");
    }

    #[test]
    fn a_gap_in_the_numbers_is_refused() {
        assert!(sections("R001 a\nR003 b\n", 'R').is_err());
        assert!(sections("R001 a\nR001 b\n", 'R').is_err());
    }

    #[test]
    fn what_is_partly_done_says_what_is_missing() {
        let partial_rows = partial("# x\nR020: no plan for 10 M rows\n").expect("rows");
        assert_eq!(partial_rows["R020"], "no plan for 10 M rows");
        assert!(partial("R020\n").is_err());
    }
}
