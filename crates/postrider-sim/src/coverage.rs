//! Which states and transitions of the engines were reached, and how often.
//!
//! A checker cannot fail where nothing happens: what was never reached was not tested.

use std::fmt::Write as _;

use crate::table;

/// A state or a transition, and how often it was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Of what it is a part.
    pub area: &'static str,
    /// Its name in the code.
    pub name: String,
    /// What happens there.
    pub what: &'static str,
    /// How often.
    pub count: u64,
}

/// Names to counts in the order of `Spot::ALL`.
#[cfg(postrider_sim)]
pub fn named(counts: &[u64]) -> Vec<Reached> {
    use postrider_core::probe::Spot;
    let counts = counts.iter().copied().chain(std::iter::repeat(0));
    let named = |(spot, count): (&Spot, u64)| Reached {
        area: spot.area(),
        name: format!("{spot:?}"),
        what: spot.what(),
        count,
    };
    Spot::ALL.iter().zip(counts).map(named).collect()
}

/// Names to counts: none, as the probes are not compiled in.
#[cfg(not(postrider_sim))]
pub fn named(_counts: &[u64]) -> Vec<Reached> {
    Vec::new()
}

/// The areas, in the order in which they first come.
fn areas(all: &[Reached]) -> Vec<&'static str> {
    let mut areas: Vec<&'static str> = Vec::new();
    for reached in all {
        if !areas.contains(&reached.area) {
            areas.push(reached.area);
        }
    }
    areas
}

/// Every spot by area with its count, and at the end what was never reached.
pub fn report(all: &[Reached]) -> String {
    let mut text = String::new();
    for area in areas(all) {
        let _ = writeln!(text, "{area}");
        for reached in all.iter().filter(|reached| reached.area == area) {
            let Reached { name, what, count, .. } = reached;
            let _ = writeln!(text, "  {count:>12}  {name:<28}  {what}");
        }
    }
    let never: Vec<&str> =
        all.iter().filter(|reached| reached.count == 0).map(|reached| &*reached.name).collect();
    let _ = match never.len() {
        0 => writeln!(text, "all {} spots were reached", all.len()),
        some => writeln!(text, "never reached: {some} of {}: {}", all.len(), never.join(", ")),
    };
    text
}

/// The same for the page: a line per area.
pub fn page(all: &[Reached]) -> String {
    let rows = areas(all).into_iter().map(|area| {
        let of: Vec<&Reached> = all.iter().filter(|reached| reached.area == area).collect();
        let never: Vec<String> =
            of.iter().filter(|r| r.count == 0).map(|r| format!("`{}`", r.name)).collect();
        let reached = format!("{} of {}", of.len() - never.len(), of.len());
        let never = if never.is_empty() { "nothing".to_owned() } else { never.join(", ") };
        vec![area.to_owned(), reached, never]
    });
    table::markdown(&["Area", "Reached", "Never reached"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(area: &'static str, name: &str, count: u64) -> Reached {
        Reached { area, name: name.to_owned(), what: "it happens", count }
    }

    #[test]
    fn what_was_never_reached_is_named_at_the_end() {
        let all = [
            reached("lease", "Granted", 7),
            reached("lane", "Opened", 0),
            reached("lease", "Lost", 0),
        ];
        let text = report(&all);
        assert!(text.ends_with("never reached: 2 of 3: Opened, Lost\n"), "{text}");
        assert!(text.starts_with("lease\n             7  Granted"), "{text}");
        let page = page(&all);
        assert!(page.contains("| lease | 1 of 2 | `Lost` |"), "{page}");
        assert!(report(&all[..1]).ends_with("all 1 spots were reached\n"));
    }
}
