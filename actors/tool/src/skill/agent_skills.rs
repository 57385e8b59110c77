//! The skills of one agent, and what its prompt says of them.

use std::sync::Arc;

use clawnode_guard::policy::Pattern;

use super::Skill;

/// Bytes of the catalogue in a system prompt: 600 tokens at three bytes each, as requests are measured.
const CATALOGUE_BYTES: usize = 1_800;
/// Characters of a description in it: the most, and how many remain if not all skills fit otherwise.
const LINE_CHARS: [usize; 2] = [160, 60];
/// Bytes kept for its last line.
const REST_BYTES: usize = 80;
/// What the catalogue begins with.
const INTRODUCTION: &str = "# Skills\n\nEach skill has instructions for certain tasks. Before you begin a task that a skill \
                            is for, read it: call `activate_skill` with its name.\n";

/// The skills of one agent, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSkills {
    pub skills: Vec<Arc<Skill>>,
    /// What its system prompt says of them; empty if there are none.
    pub catalogue: String,
    /// How many of them the catalogue does not name.
    pub unnamed: usize,
    /// The names and patterns that chose them.
    pub patterns: Vec<String>,
}

impl AgentSkills {
    /// Those of `all` whose names fit one of these patterns.
    pub fn chosen(all: &[Arc<Skill>], patterns: &[String]) -> Self {
        let fitting: Vec<Pattern> =
            patterns.iter().map(|pattern| Pattern::from(pattern.as_str())).collect();
        let is_chosen =
            |skill: &&Arc<Skill>| fitting.iter().any(|pattern| pattern.fits(&skill.head.name));
        let skills: Vec<Arc<Skill>> = all.iter().filter(is_chosen).cloned().collect();
        let (catalogue, unnamed) = catalogue(&skills);
        Self { skills, catalogue, unnamed, patterns: patterns.to_vec() }
    }

    /// The same with a skill that has come or changed, if it is one of the agent's.
    #[must_use]
    pub fn with(&self, new: &Arc<Skill>) -> Self {
        let mut all = self.skills.clone();
        all.retain(|skill| skill.head.name != new.head.name);
        all.push(Arc::clone(new));
        all.sort_by(|one, other| one.head.name.cmp(&other.head.name));
        Self::chosen(&all, &self.patterns)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// The skill of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Skill>> {
        self.skills.iter().find(|skill| skill.head.name == name)
    }
}

/// One line for each skill as far as there is room, and for how many there is none.
fn catalogue(skills: &[Arc<Skill>]) -> (String, usize) {
    if skills.is_empty() {
        return (String::new(), 0);
    }
    let mut text = String::new();
    let mut unnamed = skills.len();
    for most in LINE_CHARS {
        INTRODUCTION.clone_into(&mut text);
        unnamed = skills.len();
        for skill in skills {
            let line = line(skill, most);
            let rest = if unnamed > 1 { REST_BYTES } else { 0 };
            if text.len() + line.len() + rest > CATALOGUE_BYTES {
                break;
            }
            text.push_str(&line);
            unnamed -= 1;
        }
        if unnamed == 0 {
            return (text.trim_end().to_owned(), 0);
        }
    }
    (format!("{text}\n{unnamed} more: `discover_skills` finds them."), unnamed)
}

/// The line of a skill, whose description has at most so many characters.
fn line(skill: &Skill, most: usize) -> String {
    format!("\n- `{}`: {}", skill.head.name, skill.brief(most))
}

/// A text on one line, cut after so many characters.
fn brief(text: &str, most: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default().trim_end()),
        None => text,
    }
}

// === impl Skill ===

impl Skill {
    /// Its description on one line, cut after so many characters.
    pub fn brief(&self, most: usize) -> String {
        brief(&self.head.description, most)
    }
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
    fn the_catalogue_has_one_line_each_within_its_limit() {
        assert_eq!((of(&[]).catalogue, of(&[]).unnamed), (String::new(), 0));
        let few = of(&[skill("a", "Does\n a.", &[], "x"), skill("b", &"é".repeat(500), &[], "x")]);
        assert!(few.catalogue.contains("\n- `a`: Does a.\n- `b`: éé"), "{}", few.catalogue);
        assert!(few.catalogue.ends_with("é…") && few.unnamed == 0);
        for count in [20, 30, 200] {
            let name = |number| format!("skill-{number:03}");
            let all: Vec<_> = (0..count)
                .map(|number| skill(&name(number), &"long ".repeat(100), &[], "x"))
                .collect();
            let many = of(&all);
            assert!(many.catalogue.len() <= CATALOGUE_BYTES, "{}", many.catalogue.len());
            let named = many.catalogue.matches("- `skill-").count();
            assert_eq!(named + many.unnamed, count);
            assert_eq!(many.unnamed > 0, many.catalogue.contains("discover_skills"), "{count}");
            assert!(named >= 15, "{named}");
        }
    }

    #[test]
    fn an_agent_has_the_skills_that_it_names() {
        let all = ["deploy-app", "deploy-db", "review"].map(|name| skill(name, "d", &[], "x"));
        let names = |patterns: &[&str]| {
            let patterns: Vec<String> =
                patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            let chosen = AgentSkills::chosen(&all, &patterns);
            chosen.skills.iter().map(|skill| skill.head.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["*"]).len(), 3);
        assert_eq!(names(&["review", "deploy-d*"]), ["deploy-db", "review"]);
        assert!(names(&[]).is_empty());
        let some = AgentSkills::chosen(&all, &["deploy-*".to_owned()]);
        let with = some.with(&skill("deploy-all", "d", &[], "x"));
        assert_eq!(with.skills.len(), 3);
        assert_eq!(with.skills[0].head.name, "deploy-all", "in order");
        assert!(with.catalogue.contains("- `deploy-all`: d"));
        let changed = with.with(&skill("deploy-db", "d", &[], "new"));
        assert_eq!(
            (changed.skills.len(), changed.get("deploy-db").unwrap().text.as_str()),
            (3, "new")
        );
        assert_eq!(some.with(&skill("other", "d", &[], "x")), some, "not one of the agent's");
    }
}
