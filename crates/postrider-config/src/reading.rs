//! What is gathered while a configuration is read: problems, places of values, and what could not be
//! understood.
//!
//! Invariant: a value that could not be understood is reported once. No contradiction is reported
//! that rests on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::node::{Node, Place};
use crate::path::Path;
use crate::problem::{Origin, Problem};
use crate::source::Source;

/// Problems that are kept. Nobody mends more at a time, and a hostile file could cause a million.
pub(crate) const PROBLEMS_MAX: usize = 100;

/// The part of a place that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Key,
    Value,
}

/// What is wrong and what to do, before its place is known.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) message: String,
    pub(crate) advice: String,
}

impl Complaint {
    pub(crate) fn new(message: impl Into<String>, advice: impl Into<String>) -> Complaint {
        Complaint { message: message.into(), advice: advice.into() }
    }
}

struct Draft {
    path: Path,
    place: Place,
    part: Part,
    complaint: Complaint,
    related: Vec<Related>,
}

/// Another place that has to do with a problem.
struct Related {
    path: Path,
    place: Place,
    shown: String,
}

/// The state of a reading.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) source: Source,
    drafts: Vec<Draft>,
    warnings: Vec<Draft>,
    beyond: usize,
    places: BTreeMap<Path, Place>,
    spoiled: BTreeSet<Path>,
    /// Values as they are shown, for messages about contradictions.
    pub(crate) shown: BTreeMap<Path, String>,
}

impl Reading {
    pub(crate) fn new(source: Source) -> Reading {
        Reading { source, ..Reading::default() }
    }

    /// Remembers where a value stands.
    pub(crate) fn note(&mut self, path: &Path, node: &Node) {
        self.places.insert(path.clone(), node.place.clone());
    }

    /// Whether somebody wrote it.
    pub(crate) fn is_given(&self, path: &Path) -> bool {
        self.places.contains_key(path)
    }

    pub(crate) fn place(&self, path: &Path) -> Place {
        self.places.get(path).cloned().unwrap_or(Place::Nowhere)
    }

    /// The place of a value, or of the innermost table around it that somebody wrote.
    pub(crate) fn place_around(&self, path: &Path) -> Place {
        let mut path = path.clone();
        while !path.is_root() && !self.is_given(&path) {
            path = path.parent();
        }
        self.place(&path)
    }

    /// Keeps what is written there out of every excerpt.
    pub(crate) fn mask(&mut self, node: &Node) {
        let mut spans = Vec::new();
        node.spans(&mut spans);
        spans.into_iter().for_each(|span| self.source.mask(span));
    }

    /// Reports a value that cannot be understood.
    pub(crate) fn refuse(&mut self, path: &Path, place: &Place, part: Part, complaint: Complaint) {
        self.spoiled.insert(path.clone());
        self.push(Draft {
            path: path.clone(),
            place: place.clone(),
            part,
            complaint,
            related: Vec::new(),
        });
    }

    /// Reports what is wrong between values that are right by themselves: at the first of the paths
    /// that somebody wrote, with the others beside it. Says nothing if one of them is spoiled.
    pub(crate) fn contradict(&mut self, paths: &[Path], complaint: Complaint) {
        if self.is_sound(paths)
            && let Some(draft) = self.draft(paths, complaint)
        {
            self.push(draft);
        }
    }

    /// The same, but for what may be meant.
    pub(crate) fn warn(&mut self, paths: &[Path], complaint: Complaint) {
        if self.is_sound(paths)
            && self.warnings.len() < PROBLEMS_MAX
            && let Some(draft) = self.draft(paths, complaint)
        {
            self.warnings.push(draft);
        }
    }

    /// Whether all of them were understood, with whatever is inside.
    pub(crate) fn is_sound(&self, paths: &[Path]) -> bool {
        let touches = |spoiled: &Path, path: &Path| spoiled.holds(path) || path.holds(spoiled);
        !self.spoiled.iter().any(|spoiled| paths.iter().any(|path| touches(spoiled, path)))
    }

    /// Whether it was understood, whatever is inside.
    pub(crate) fn is_read(&self, path: &Path) -> bool {
        !self.spoiled.iter().any(|spoiled| spoiled.holds(path))
    }

    fn draft(&self, paths: &[Path], complaint: Complaint) -> Option<Draft> {
        let first = paths.iter().find(|path| self.is_given(path)).or_else(|| paths.first())?;
        let others = paths.iter().filter(|path| *path != first);
        let related = others.map(|path| Related {
            path: path.clone(),
            place: self.place(path),
            shown: self.shown.get(path).cloned().unwrap_or_default(),
        });
        // A contradiction with a table is about its name, not about its first line.
        let part = if self.shown.contains_key(first) { Part::Value } else { Part::Key };
        let related = related.collect();
        let place = self.place_around(first);
        Some(Draft { path: first.clone(), place, part, complaint, related })
    }

    fn push(&mut self, draft: Draft) {
        if self.is_full() {
            self.refuse_beyond();
        } else {
            self.drafts.push(draft);
        }
    }

    /// Whether further problems are only counted, so that their texts need not be made.
    pub(crate) fn is_full(&self) -> bool {
        self.drafts.len() >= PROBLEMS_MAX
    }

    /// Counts a problem that is not kept.
    pub(crate) fn refuse_beyond(&mut self) {
        self.beyond += 1;
    }

    /// The place of a value, for people.
    pub(crate) fn origin(&self, path: &Path) -> Origin {
        self.origin_of(&self.place(path), Part::Value)
    }

    fn origin_of(&self, place: &Place, part: Part) -> Origin {
        match (place, self.span(place, part)) {
            (Place::Variable(name), _) => Origin::Variable(name.to_string()),
            (_, Some(span)) => Origin::File {
                path: self.source.name().to_owned(),
                line: self.source.line(span.start),
                column: self.source.column(span.start),
            },
            _ => Origin::Default,
        }
    }

    fn span(&self, place: &Place, part: Part) -> Option<Range<usize>> {
        match (place, part) {
            (Place::File { key, .. }, Part::Key) => Some(key.clone()),
            (Place::File { value, .. }, Part::Value) => Some(value.clone()),
            _ => None,
        }
    }

    /// A problem of a value that was read, found afterwards.
    pub(crate) fn problem_at(&self, path: &Path, complaint: Complaint) -> Problem {
        self.write(&Draft {
            path: path.clone(),
            place: self.place(path),
            part: Part::Value,
            complaint,
            related: Vec::new(),
        })
    }

    /// All problems in the order of the file, then those of the environment.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = self.written(&self.drafts);
        if self.beyond > 0 {
            let message = format!("and {} more problems, not shown", self.beyond);
            problems.push(Problem::of_file(self.source.name(), message, ""));
        }
        problems
    }

    pub(crate) fn warnings(&self) -> Vec<Problem> {
        self.written(&self.warnings)
    }

    fn written(&self, drafts: &[Draft]) -> Vec<Problem> {
        let mut problems: Vec<Problem> = drafts.iter().map(|draft| self.write(draft)).collect();
        problems.sort_by(|a, b| a.origin.cmp(&b.origin));
        problems
    }

    fn write(&self, draft: &Draft) -> Problem {
        let span = self.span(&draft.place, draft.part);
        let origin = match self.origin_of(&draft.place, draft.part) {
            Origin::Default if !self.source.name().is_empty() => {
                Origin::File { path: self.source.name().to_owned(), line: 0, column: 0 }
            }
            origin => origin,
        };
        Problem {
            origin,
            key: draft.path.to_string(),
            message: draft.complaint.message.clone(),
            advice: draft.complaint.advice.clone(),
            related: draft.related.iter().map(|related| self.relate(related)).collect(),
            excerpt: span.map(|span| self.source.excerpt(&span)),
        }
    }

    fn relate(&self, related: &Related) -> String {
        let Related { path, shown, .. } = related;
        let part = if shown.is_empty() { Part::Key } else { Part::Value };
        let value = if shown.is_empty() { path.to_string() } else { format!("{path} = {shown}") };
        match self.origin_of(&related.place, part) {
            Origin::Default if shown.is_empty() => format!("{value} is absent"),
            Origin::Default => format!("{value} is the default"),
            origin => format!("{value} stands in {origin}"),
        }
    }
}
