//! What routes are made of: templates of topics, record keys, patterns, and rules of names.

use postrider_core::template::nearest;
use postrider_core::{Event, EventId, Glob, RecordKey, Template, TopicRule};

/// A line with what is written in a route, and one with a text that it meets.
pub fn templates(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (written, met) = text.split_once('\n').unwrap_or((text, ""));
    let (first, second) = met.split_once('/').unwrap_or((met, "42"));
    let mut event = Event::new(EventId::from_u128(1), first, second, met);
    if let Ok(template) = written.parse::<Template>() {
        filled(&template, written, &event);
    }
    if let Ok(template) = written.parse::<RecordKey>() {
        assert_eq!(template.to_string(), written);
        let key = template.of(&event).expect("a template makes a key").into_owned();
        event.key = Some(event.key().into());
        event.aggregate_type = "other".into();
        event.aggregate_id = "7".into();
        assert_eq!(template.of(&event).as_deref(), Some(&*key), "a key is in two partitions");
    }
    assert_eq!(Glob::new(written).matches(met), matches(written, met), "`{written}` and `{met}`");
    ruled(written);
    assert!(["key", "tenant"].contains(&nearest(written, &["key", "tenant"])));
}

fn filled(template: &Template, written: &str, event: &Event) {
    assert_eq!(template.to_string(), written);
    let topic = template.render(event);
    assert!(topic.starts_with(&template.prefix().0), "{written}");
    let within = |partition| topic.starts_with(&template.prefix_within(partition).0);
    if let Some(count) = template.partitions() {
        assert!((0..count).any(within), "{written}: no partition has {topic}");
    }
}

/// The definition of a pattern, by a table: what of the pattern matches what of the text.
fn matches(pattern: &str, text: &str) -> bool {
    let text = text.as_bytes();
    let mut row: Vec<bool> = std::iter::once(true).chain(text.iter().map(|_| false)).collect();
    for sign in pattern.bytes() {
        let mut next = vec![sign == b'*' && row[0]];
        for (at, byte) in text.iter().enumerate() {
            let is = if sign == b'*' { next[at] || row[at + 1] } else { row[at] && sign == *byte };
            next.push(is);
        }
        row = next;
    }
    row[text.len()]
}

/// What a rule lets through is safe to be written where that kind of name stands.
fn ruled(topic: &str) {
    let usable = |rule: TopicRule| rule.unusable(topic).is_none();
    assert!(usable(TopicRule::Any));
    if usable(TopicRule::Name) {
        assert!(topic.len() <= 249 && topic.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    if usable(TopicRule::Subject) {
        assert!(!topic.is_empty() && topic.len() <= 1_024 && !topic.contains(['\r', '\n', ' ']));
    }
    assert!(!usable(TopicRule::Word) || usable(TopicRule::Subject), "{topic:?}");
}
