//! Which skills a message calls for: those with a trigger that is in the message as whole words. Pure.

use std::sync::Arc;

use clawnode_proto::limits::{SKILLS_SHOWN_BYTES, SKILLS_TRIGGERED};

use super::{agent_skills::AgentSkills, skill_folder::Skill};

impl AgentSkills {
    /// The skills that a message calls for by their triggers, as many as are shown at once.
    pub fn triggered(&self, message: &str) -> Vec<&Arc<Skill>> {
        if self.skills.iter().all(|skill| skill.head.triggers.is_empty()) {
            return Vec::new();
        }
        let message = message.to_lowercase();
        let mut room = SKILLS_SHOWN_BYTES;
        let called = self.skills.iter().filter(|skill| {
            let is_called = skill.head.triggers.iter().any(|trigger| has_phrase(&message, trigger));
            let fits = is_called && skill.text.len() <= room;
            room -= if fits { skill.text.len() } else { 0 };
            fits
        });
        called.take(SKILLS_TRIGGERED).collect()
    }
}

/// Whether a text has this phrase, and not as a part of longer words.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (first, last) = (phrase.chars().next(), phrase.chars().next_back());
    text.match_indices(phrase).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + phrase.len()..).and_then(|text| text.chars().next());
        let goes_on = |edge, beside| is_word(edge) && is_word(beside);
        !goes_on(first, before) && !goes_on(last, after)
    })
}

#[cfg(test)]
mod tests {
    use clawnode_proto::Digest;

    use super::{super::SkillHead, *};

    fn skill(name: &str, description: &str, triggers: &[&str], text: &str) -> Arc<Skill> {
        let triggers = triggers.iter().map(|trigger| (*trigger).to_owned()).collect();
        let (name, description) = (name.to_owned(), description.to_owned());
        Arc::new(Skill {
            head: SkillHead { name, description, triggers, ..SkillHead::default() },
            text: text.to_owned(),
            digest: Digest::of(text.as_bytes()),
            folder: "/skills".into(),
            files: Vec::new(),
        })
    }

    fn of(skills: &[Arc<Skill>]) -> AgentSkills {
        AgentSkills::chosen(skills, &["*".to_owned()])
    }

    #[test]
    fn a_message_calls_for_skills_by_whole_words() {
        let all = [
            skill("deploy", "d", &["deploy", "go live"], "x"),
            skill("plus", "d", &["c++", "日本"], "x"),
            skill("none", "d", &[], "x"),
        ];
        let skills = of(&all);
        let called = |message: &str| {
            let called = skills.triggered(message);
            called.into_iter().map(|skill| skill.head.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(called("Please DEPLOY it."), ["deploy"]);
        assert_eq!(called("we go live, now"), ["deploy"]);
        assert_eq!(called("deployment, redeploy, ego live"), [""; 0]);
        assert_eq!(called("redeploy? deploy!"), ["deploy"], "a later place counts");
        assert_eq!(called("c++11"), ["plus"], "a sign ends a word");
        assert_eq!(called("deploy c++ code"), ["deploy", "plus"]);
    }

    #[test]
    fn only_so_much_is_shown_at_once() {
        let half = "x".repeat(SKILLS_SHOWN_BYTES / 2 + 1);
        let all = [
            skill("a", "d", &["go"], &half),
            skill("b", "d", &["go"], &half),
            skill("c", "d", &["go"], "x"),
        ];
        let skills = of(&all);
        let names: Vec<&str> =
            skills.triggered("go").into_iter().map(|skill| skill.head.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        let many: Vec<_> =
            (0..9).map(|number| skill(&format!("s{number}"), "d", &["go"], "x")).collect();
        assert_eq!(of(&many).triggered("go").len(), SKILLS_TRIGGERED);
    }
}
