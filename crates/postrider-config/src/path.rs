//! Where a value stands in the configuration, `destinations.partners.routes[0].topic`, and the name
//! of the environment variable for it.

use std::fmt;

/// The path of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    /// The path of dotted names without dots inside.
    pub(crate) fn of(dotted: &str) -> Path {
        dotted.split('.').fold(Path::default(), |path, name| path.key(name))
    }

    #[must_use]
    pub(crate) fn key(&self, name: &str) -> Path {
        self.step(Step::Key(name.to_owned()))
    }

    #[must_use]
    pub(crate) fn index(&self, index: usize) -> Path {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Path {
        let mut steps = self.0.clone();
        steps.push(step);
        Path(steps)
    }

    pub(crate) fn parent(&self) -> Path {
        Path(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the other is this one, or lies inside.
    pub(crate) fn holds(&self, other: &Path) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The heading of the table, without places in lists.
    pub(crate) fn heading(&self) -> String {
        let keys = self.0.iter().filter(|step| matches!(step, Step::Key(_)));
        Path(keys.cloned().collect()).to_string()
    }

    /// The environment variable.
    pub(crate) fn variable(&self) -> String {
        let names: Vec<String> = self
            .0
            .iter()
            .map(|step| match step {
                Step::Key(name) => segment(name),
                Step::Index(index) => index.to_string(),
            })
            .collect();
        format!("{PREFIX}{}", names.join("__"))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(name) => {
                    let dot = if index == 0 { "" } else { "." };
                    write!(f, "{dot}{}", written(name))?;
                }
            }
        }
        Ok(())
    }
}

/// A key as it is written in TOML.
pub(crate) fn written(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) {
        name.to_owned()
    } else {
        crate::key::quoted(name)
    }
}

/// What every variable begins with.
pub(crate) const PREFIX: &str = "POSTRIDER_";

/// A name of the file as it stands in the name of a variable.
pub(crate) fn segment(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_hold_what_is_inside() {
        let routes = Path::of("destinations").key("a.b").key("routes");
        assert_eq!(routes.index(1).to_string(), "destinations.\"a.b\".routes[1]");
        assert_eq!(routes.index(1).heading(), "destinations.\"a.b\".routes");
        assert!(routes.holds(&routes.index(0).key("topic")));
        assert!(!routes.index(1).holds(&routes.index(10)));
        assert!(Path::default().holds(&routes));
    }

    #[test]
    fn variables_are_upper_case_with_double_underscores() {
        let path = Path::of("destinations.a-b.routes").index(0).key("topic");
        assert_eq!(path.variable(), "POSTRIDER_DESTINATIONS__A_B__ROUTES__0__TOPIC");
    }
}
