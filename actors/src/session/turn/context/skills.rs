//! Which skills a turn begins with, and how its model is shown them. Pure.
//!
//! The triggers of the agent's skills are held against the message that begins a turn. What they activate goes into the
//! append of its first call, with the text: each attempt at each call of the turn is shown the same, whatever becomes
//! of the files. It precedes what the turn's person said, and is gone from the next turn's requests.

use std::borrow::Cow;

use clawnode_kernel::Violation;
use clawnode_proto::{
    llm::{Message, Role},
    skill::{ActiveSkill, SkillsActivated},
};

use super::super::state::{SessionState, Turn};
use crate::agent::AgentOptions;

/// What precedes the skills that a message has activated.
const INTRODUCTION: &str = "The next message has words for which these skills were activated. Follow them where they \
                            fit.";

// === impl SessionState ===

impl SessionState {
    /// The running turn begins with skills.
    pub(in crate::session::turn) fn activated(
        &mut self,
        activated: &SkillsActivated,
    ) -> Result<(), Violation> {
        let turn = self.open.front_mut().filter(|turn| turn.id == activated.turn);
        let Some(turn) = turn.filter(|turn| turn.may_activate()) else {
            let id = activated.turn;
            return Err(Violation(format!("skills are activated in `{id}`, which does not begin")));
        };
        turn.skills.clone_from(&activated.skills);
        Ok(())
    }
}

// === impl Turn ===

impl Turn {
    /// Whether its first call is still to be made, and no skills are active.
    fn may_activate(&self) -> bool {
        self.steps.is_empty() && self.skills.is_empty() && self.plan.is_none()
    }

    /// The turn with the skills that its first call activates.
    pub(in crate::session::turn) fn with_triggered(&self, options: &AgentOptions) -> Cow<'_, Self> {
        if !self.may_activate() || options.skills.is_empty() {
            return Cow::Borrowed(self);
        }
        let said = self.said.first().and_then(|(_, text)| text.inline()).unwrap_or_default();
        let skills: Vec<ActiveSkill> = options
            .skills
            .triggered(said)
            .into_iter()
            .map(|skill| ActiveSkill {
                name: skill.head.name.clone(),
                digest: skill.digest,
                text: skill.text.clone(),
            })
            .collect();
        if skills.is_empty() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self { skills, ..self.clone() })
    }

    /// What its model is shown of its skills, before all else of the turn.
    pub(super) fn told_skills(&self) -> Option<Message> {
        if self.skills.iter().all(|skill| skill.text.is_empty()) {
            return None;
        }
        let mut text = INTRODUCTION.to_owned();
        for ActiveSkill { name, text: instructions, .. } in &self.skills {
            for part in ["\n\n<skill name=\"", name, "\">\n", instructions, "\n</skill>"] {
                text.push_str(part);
            }
        }
        Some(Message::text(Role::User, text))
    }

    /// Its messages as a model reads them while it runs.
    pub(in crate::session::turn) fn messages_running(&self) -> Vec<Message> {
        let before = self.told_recalled().into_iter().chain(self.told_skills());
        before.chain(self.messages()).collect()
    }

    /// Only the names and digests of its skills outlive it.
    pub(in crate::session::turn) fn forget_skills(&mut self) {
        for skill in &mut self.skills {
            skill.text = String::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_kernel::Entity;
    use clawnode_proto::{
        Digest,
        event::decode_record,
        hook::HookPoint,
        session::{SessionEvent, SessionInput, UserMessage},
    };
    use clawnode_tool::skill::{AgentSkills, Skill, SkillHead};

    use super::*;
    use crate::{
        agent::Grant,
        session::{
            Session, SessionJob,
            played::{PlayedActivation, key},
            turn::{context::model_input::Assembled, prepare::JudgeSubject},
        },
    };

    fn skills(text: &str) -> Arc<AgentSkills> {
        let head = SkillHead {
            name: "deploy".to_owned(),
            description: "Ships a release.".to_owned(),
            triggers: vec!["deploy".to_owned()],
            ..SkillHead::default()
        };
        let (text, digest) = (text.to_owned(), Digest::of(text.as_bytes()));
        let skill = Skill { head, text, digest, folder: "/skills".into(), files: Vec::new() };
        Arc::new(AgentSkills::chosen(&[Arc::new(skill)], &["*".to_owned()]))
    }

    fn with_skills(mut run: PlayedActivation, text: &str) -> PlayedActivation {
        let options = (*run.grant.options).clone();
        run.grant = Grant::free(AgentOptions { skills: skills(text), ..options });
        run
    }

    fn says(run: &mut PlayedActivation, id: &str, text: &str) {
        run.hears(id, &SessionInput::UserMessage(UserMessage::text(text.to_owned())));
    }

    fn request(run: &PlayedActivation) -> Assembled {
        let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
        job.request.clone()
    }

    fn texts(request: &Assembled) -> Vec<&str> {
        request.messages.iter().filter_map(|one| one.content.inline()).collect()
    }

    fn activated(run: &PlayedActivation) -> Vec<SkillsActivated> {
        let sealed = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
        let events = sealed.filter_map(|event| event.event::<SessionEvent>().unwrap());
        events
            .filter_map(|event| match event {
                SessionEvent::SkillsActivated(activated) => Some(activated),
                _ => None,
            })
            .collect()
    }

    /// Replays the whole journal: each request is the one that was sent (CTX-1).
    fn replays(run: &PlayedActivation) -> Entity<Session> {
        let mut entity = Entity::<Session>::unborn(key().entity());
        for sealed in run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()) {
            if let Some(event) = sealed.event::<SessionEvent>().unwrap() {
                let told = crate::session::turn::recorded::replay(&entity.state, &event);
                told.unwrap_or(Ok(())).unwrap();
            }
            entity.apply(&sealed).unwrap();
        }
        entity
    }

    #[test]
    fn a_trigger_shows_a_skill_for_one_turn_and_the_journal_has_it() {
        let mut run = with_skills(PlayedActivation::new(&[], Vec::new()), "Use the script.");
        says(&mut run, "m1", "deploy it, please");
        let first = request(&run);
        let told = texts(&first);
        assert!(told[0].contains("<skill name=\"deploy\">\nUse the script.\n</skill>"), "{told:?}");
        assert_eq!(told[1], "deploy it, please");
        assert!(first.system.contains("- `deploy`: Ships a release."), "{}", first.system);
        // What a budget counts is what is sent.
        let counted = replays(&run).state.running().unwrap().messages_running();
        assert_eq!(counted, first.messages);
        // The next call of the turn is shown the same, whatever the file says by now.
        run = with_skills(run, "Changed.");
        run.replies(&[("look", "{}")]);
        assert_eq!(texts(&request(&run))[..2], told[..]);
        run.replies(&[]);
        says(&mut run, "m2", "and now?");
        let later = request(&run);
        assert!(!texts(&later).iter().any(|text| text.contains("<skill")), "{:?}", texts(&later));
        let [only] = activated(&run).try_into().unwrap();
        assert_eq!(only.skills[0].digest, Digest::of(b"Use the script."));
        assert_eq!(only.skills[0].text, "Use the script.");
        let state = replays(&run).state;
        assert_eq!(state.closed[0].skills[0].digest, only.skills[0].digest);
        assert_eq!(state.closed[0].skills[0].text, "", "the state does not grow by it");
    }

    /// HOOK-2: hooks see the request with the skills, and what they judged is sent.
    #[test]
    fn hooks_judge_the_request_with_the_skills() {
        let run = PlayedActivation::new(&[HookPoint::BeforeLlmCall], Vec::new());
        let mut run = with_skills(run, "Use the script.");
        says(&mut run, "m1", "deploy");
        let Some((_, SessionJob::Judge(job))) = run.started.last() else { panic!("not judged") };
        let JudgeSubject::Model(judged) = &job.subject else { panic!("no model call is judged") };
        let judged = judged.clone();
        assert!(texts(&judged)[0].contains("Use the script."));
        run.judged(Vec::new());
        assert_eq!(request(&run).digest(), judged.digest());
        assert_eq!(activated(&run).len(), 1);
    }

    #[test]
    fn without_a_trigger_nothing_is_journaled() {
        let mut run = with_skills(PlayedActivation::new(&[], Vec::new()), "x");
        says(&mut run, "m1", "hello");
        assert!(activated(&run).is_empty());
        assert_eq!(texts(&request(&run)), ["hello"]);
        replays(&run);
        let mut plain = PlayedActivation::new(&[], Vec::new());
        says(&mut plain, "m1", "deploy");
        assert!(activated(&plain).is_empty());
        assert!(!request(&plain).system.contains("Skills"), "an agent without skills");
    }

    #[test]
    fn skills_are_activated_only_as_a_turn_begins() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        says(&mut run, "m1", "hello");
        let mut state = replays(&run).state;
        let turn = state.running().unwrap().id;
        let activated = SkillsActivated { turn, skills: Vec::new() };
        assert!(state.activated(&activated).is_err(), "its first call was made");
        state.open.front_mut().unwrap().steps.clear();
        state.activated(&activated).unwrap();
        let other = SkillsActivated { turn: clawnode_proto::TurnId::from_u128(9), ..activated };
        assert!(state.activated(&other).is_err());
    }
}
