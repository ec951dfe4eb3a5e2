//! Which program begins next, and beside which others.

use std::collections::VecDeque;

use super::Program;

/// How many run side by side. Each has as many threads as there are processors; any third one makes nothing faster, and
/// DynamoDB's emulator too slow for its clients.
pub(super) const LANES: usize = 2;
/// Those that wait for nearly all of their time, for servers of their own to be away, to stand still, or to come back (8 to 36
/// seconds of processors' time in two minutes), and that use no server of the others': DynamoDB's emulator has no room for more
/// clients. They run in a lane of their own beside the others, one after the other. At the end, as they were, they leave both
/// processors idle for half of the time.
const WAITING: [&str; 3] =
    ["postrider-nats main", "postrider-nats main, on the current version", "postrider-aws main"];
/// Those that take longest begin first: none of them is what all wait for at the end.
const LONGEST: [&str; 16] = [
    "postrider-postgres main",
    "postrider-dynamodb main",
    "postrider-kafka main",
    "postrider-e2e-brokers main",
    "postrider-cli cli",
    "postrider-e2e-aws main",
    "postrider-postgres main, on the current version",
    "postrider-relay engine",
    "postrider-cli consume",
    "postrider-e2e-postgres main",
    "postrider-e2e-postgres main, on the current version",
    "postrider-e2e main",
    "postrider-sqlite main",
    "postrider-lambda main",
    "postrider-postgres snapshot",
    "postrider-cli cli, on the current version",
];

/// In the order in which they begin.
pub(super) fn sorted(mut programs: Vec<Program>) -> VecDeque<Program> {
    let rank = |program: &Program| {
        let name = program.name();
        let mut known = WAITING.iter().chain(&LONGEST);
        known.position(|known| *known == name).unwrap_or(WAITING.len() + LONGEST.len())
    };
    programs.sort_by_key(|program| (rank(program), program.name()));
    programs.into()
}

/// Takes the next program of a lane: of those that wait, or of the others as long as there are some.
pub(super) fn take(queue: &mut VecDeque<Program>, waits: bool) -> Option<Program> {
    let is_waiting = |program: &Program| WAITING.contains(&program.name().as_str());
    match queue.iter().position(|program| is_waiting(program) == waits) {
        Some(next) => queue.remove(next),
        None if waits => None,
        None => queue.pop_front(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::LINE;
    use super::*;

    #[test]
    fn those_that_take_long_begin_first() {
        let other = LINE.replace("postrider-postgres", "a-first");
        let all = [other.as_str(), LINE].map(|line| Program::of(line).expect("a program"));
        let names: Vec<_> = sorted(all.to_vec()).iter().map(Program::name).collect();
        assert_eq!(names, ["postrider-postgres main", "a-first main"]);
    }

    #[test]
    fn those_that_wait_have_a_lane_of_their_own() {
        let lines = ["postrider-nats", "postrider-cli", "postrider-aws"]
            .map(|package| LINE.replace("postrider-postgres", package));
        let all = lines.map(|line| Program::of(&line).expect("a program"));
        let mut queue = sorted(all.to_vec());
        let mut next = |waits| take(&mut queue, waits).map(|program| program.package);
        assert_eq!(next(true).as_deref(), Some("postrider-nats"));
        assert_eq!(next(false).as_deref(), Some("postrider-cli"));
        assert_eq!(next(false).as_deref(), Some("postrider-aws"), "nobody rests before the end");
        assert_eq!((next(true), next(false)), (None, None));
    }
}
