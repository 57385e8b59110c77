//! Reflection: a model looks back at a turn that has ended. It rates it and writes lessons, or it finds facts in what the person
//! said. Both are for the memory of the person.

use serde::{Deserialize, Serialize};

use crate::{
    id::{Attempt, CallId, Digest, TurnId},
    limits::{LEARNED_POINTS, LESSON_CHARS, REFLECTION_LESSONS},
    llm::{ModelFailure, ModelRef, Usage},
    memory::{MemoryLayer, MemoryTrust},
    memory_point::PointContent,
};

/// The least and the best rating of a turn.
pub const RATING: (u8, u8) = (1, 5);

/// What a session is sent to have a model look back at one of its turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReflectInput {
    /// The turn. It has no effect on one that has not ended.
    pub turn: TurnId,
}

/// A model is asked to look back at a turn. From here on, the call may cost something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReflectionBegun {
    /// The turn that the model looks back at. It has ended.
    pub turn: TurnId,
    /// The model call.
    pub call: CallId,
    /// Which attempt at the call.
    pub attempt: Attempt,
    /// The model that is asked.
    pub model: ModelRef,
    /// The digest of the request.
    pub request: Digest,
    /// The limit of the reply, in tokens.
    pub max_tokens: u32,
}

/// A model has looked back at a turn. Its lessons, or the facts, are sent to the memory of the person, with this event as their
/// source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reflected {
    /// The turn that the model looked back at.
    pub turn: TurnId,
    /// The model call.
    pub call: CallId,
    /// Which attempt at the call.
    pub attempt: Attempt,
    /// How good the turn was, 1 to 5. No person has said so. Absent if the model was asked for facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rating: Option<u8>,
    /// What to do otherwise, or again, in other conversations: at most 3 texts of at most 300 characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lessons: Vec<String>,
    /// What the person said of themselves, if the model was asked for facts: at most 5, of the layers `semantic` and `social`. Their
    /// trust is `person` where the text is a sentence of the person, and `agent` where it is the model's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<PointContent>,
    /// The model that wrote them.
    pub by: ModelRef,
    /// What the attempt used. `settled` of the turn does not have it.
    pub usage: Usage,
}

/// A turn has no rating by this call, no lessons and no facts. Nothing else follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReflectionFailed {
    /// The turn that the model was to look back at.
    pub turn: TurnId,
    /// The model call.
    pub call: CallId,
    /// Which attempt at the call; 0 if none was made, or if its end is not known.
    pub attempt: Attempt,
    /// Why not.
    pub failure: ModelFailure,
    /// What the attempt used. `settled` of the turn does not have it.
    pub usage: Usage,
}

/// What breaks a limit of a rating and its lessons, in words.
pub fn check_reflection(rating: u8, lessons: &[String]) -> Result<(), String> {
    let (least, most) = RATING;
    if !(least..=most).contains(&rating) {
        return Err(format!("the rating is {rating}, not {least} to {most}"));
    }
    if lessons.len() > REFLECTION_LESSONS {
        return Err(format!("there are {} lessons, at most {REFLECTION_LESSONS}", lessons.len()));
    }
    if lessons.iter().any(|lesson| lesson.trim().is_empty()) {
        return Err("a lesson is empty".to_owned());
    }
    if lessons.iter().any(|lesson| lesson.chars().count() > LESSON_CHARS) {
        return Err(format!("a lesson is longer than {LESSON_CHARS} characters"));
    }
    Ok(())
}

/// What breaks a limit of facts that a model found, in words. S-22: none is a standing instruction, and no model speaks for an
/// operator.
pub fn check_found_facts(facts: &[PointContent]) -> Result<(), String> {
    if facts.len() > LEARNED_POINTS {
        return Err(format!("there are {} facts, at most {LEARNED_POINTS}", facts.len()));
    }
    for fact in facts {
        fact.check()?;
        if !matches!(fact.layer, MemoryLayer::Semantic | MemoryLayer::Social) {
            return Err("a fact is not of the layer `semantic` or `social`".to_owned());
        }
        if !matches!(fact.trust, MemoryTrust::Person | MemoryTrust::Agent) {
            return Err("a fact has not the trust `person` or `agent`".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_point::IMPORTANCE_DEFAULT;

    fn fact(layer: MemoryLayer, trust: MemoryTrust) -> PointContent {
        let (subject, predicate, object) = (None, None, None);
        let (text, confidence, importance) = ("I sail.".to_owned(), 70, IMPORTANCE_DEFAULT);
        PointContent { layer, text, subject, predicate, object, confidence, importance, trust }
    }

    #[test]
    fn s_22_facts_of_a_model_are_no_instructions_and_of_no_operator() {
        let (semantic, person) = (MemoryLayer::Semantic, MemoryTrust::Person);
        let good = [fact(semantic, person), fact(MemoryLayer::Social, MemoryTrust::Agent)];
        assert_eq!(check_found_facts(&good), Ok(()));
        let long = PointContent { text: "x".repeat(1_001), ..fact(semantic, person) };
        for (facts, said) in [
            (vec![fact(MemoryLayer::Procedural, person)], "layer"),
            (vec![fact(MemoryLayer::Episode, person)], "layer"),
            (vec![fact(semantic, MemoryTrust::Operator)], "trust"),
            (vec![fact(semantic, MemoryTrust::Tool)], "trust"),
            (vec![fact(semantic, person); 6], "6 facts"),
            (vec![long], "longer"),
        ] {
            let why = check_found_facts(&facts).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn a_rating_and_its_lessons_keep_their_limits() {
        let most = "\u{e9}".repeat(LESSON_CHARS);
        assert_eq!(check_reflection(1, &[]), Ok(()));
        assert_eq!(check_reflection(5, &[most.clone(), "b".to_owned(), "c".to_owned()]), Ok(()));
        for (rating, lessons, said) in [
            (0, vec![], "the rating is 0, not 1 to 5"),
            (6, vec![], "the rating is 6, not 1 to 5"),
            (3, vec!["x".to_owned(); 4], "there are 4 lessons, at most 3"),
            (3, vec![" \n".to_owned()], "a lesson is empty"),
            (3, vec![most + "x"], "a lesson is longer than 300 characters"),
        ] {
            assert_eq!(check_reflection(rating, &lessons).unwrap_err(), said);
        }
    }
}
