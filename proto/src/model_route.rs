//! Routes: which model a call asks first, by the size of its prompt, what is attached, and what it costs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{id::AgentName, llm::ModelRef, media::MediaKind, money::MicroUsd};

/// A kind of content that a prompt may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// Text alone: nothing is attached.
    Text,
    /// A picture.
    Image,
    /// A document of pages.
    Document,
    /// Sound.
    Audio,
}

/// One row of an agent's routes: calls whose prompt fits all that is given ask this model first. The first
/// row that fits decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelRoute {
    /// The model, as `PROVIDER/MODEL`.
    pub model: ModelRef,
    /// The fewest tokens of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_prompt_tokens: Option<u64>,
    /// The most tokens of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prompt_tokens: Option<u64>,
    /// Kinds of input of which the prompt has at least one. Empty: any prompt fits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input: Vec<InputKind>,
    /// The most that the call may cost if it asks this model, in micro-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd: Option<MicroUsd>,
}

/// The most that a call would cost if it asked the model of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteCost {
    /// The number of the row, from 1.
    pub row: u32,
    /// The cost of its prompt and of the longest reply, in micro-dollars.
    pub most: MicroUsd,
}

/// The model of a row does not take one of the settings of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteRefusal {
    /// The number of the row, from 1.
    pub row: u32,
    /// The setting, for example `seed`.
    pub setting: String,
}

/// What routes look at: the whole conversation with the system prompt, whatever a full window leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromptFacts {
    /// Its tokens, estimated from its bytes.
    pub tokens: u64,
    /// The kinds of its attachments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<MediaKind>,
    /// What the call would cost by each row that has `max_usd`. A row is absent if its model has no price.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<RouteCost>,
    /// The rows whose model does not take one of the settings of the call. They do not fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RouteRefusal>,
}

/// Which row of an agent's routes decided about a call, and by what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteTaken {
    /// The number of the row, from 1. Absent: no row fits, and the agent's own model is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// What it was compared with.
    pub prompt: PromptFacts,
}

/// Answer of `models.route`: which model the next call of a session asks, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteView {
    /// The agent that answers in this session.
    pub agent: AgentName,
    /// The model that is asked.
    pub model: ModelRef,
    /// Why that one.
    pub reason: RouteReason,
    /// The models that are asked if it does not answer, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<ModelRef>,
    /// What the rows are compared with.
    pub prompt: PromptFacts,
    /// The rows of the agent's routes, in order.
    pub rows: Vec<RouteRow>,
}

/// Why a model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RouteReason {
    /// A row of the routes fits.
    Route,
    /// No row fits: the agent's own model is asked.
    Agent,
    /// The message chose it.
    Message,
    /// An earlier message chose it for the session.
    Session,
    /// Those before it did not answer.
    Fallback,
    /// No model is asked: the turn runs a plan.
    Plan,
}

/// One row of an agent's routes, compared with a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteRow {
    /// Its number, from 1.
    pub row: u32,
    /// What it asks for, and its model.
    pub route: ModelRoute,
    /// Whether the prompt fits.
    pub fits: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfit: Option<String>,
}

impl fmt::Display for InputKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Document => "document",
            Self::Audio => "audio",
        })
    }
}

impl fmt::Display for RouteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Route => "the first row that fits",
            Self::Agent => "the agent's own: no row fits",
            Self::Message => "chosen with the message; routes do not apply",
            Self::Session => "chosen for the session; routes do not apply",
            Self::Fallback => "the models before it did not answer",
            Self::Plan => "the turn runs a plan, which asks no model",
        })
    }
}

// === impl InputKind ===

impl InputKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Text, Self::Image, Self::Document, Self::Audio];

    /// What is attached, if anything is.
    pub const fn media(self) -> Option<MediaKind> {
        match self {
            Self::Text => None,
            Self::Image => Some(MediaKind::Image),
            Self::Document => Some(MediaKind::Document),
            Self::Audio => Some(MediaKind::Audio),
        }
    }

    fn is_in(self, prompt: &PromptFacts) -> bool {
        self.media().map_or(prompt.media.is_empty(), |kind| prompt.media.contains(&kind))
    }
}

// === impl ModelRoute ===

impl ModelRoute {
    /// Whether it compares nothing: every prompt would fit.
    pub const fn is_unconditional(&self) -> bool {
        self.min_prompt_tokens.is_none()
            && self.max_prompt_tokens.is_none()
            && self.input.is_empty()
            && self.max_usd.is_none()
    }

    /// Why a prompt does not fit this row, which has this number; `None` if it does.
    fn misfit(&self, row: u32, prompt: &PromptFacts) -> Option<String> {
        if let Some(setting) = prompt.refused(row) {
            return Some(format!("its model does not take `{setting}`"));
        }
        let tokens = prompt.tokens;
        if let Some(min) = self.min_prompt_tokens.filter(|min| tokens < *min) {
            return Some(format!("the prompt has {tokens} tokens, fewer than {min}"));
        }
        if let Some(max) = self.max_prompt_tokens.filter(|max| tokens > *max) {
            return Some(format!("the prompt has {tokens} tokens, more than {max}"));
        }
        if self.input.is_empty() || self.input.iter().any(|kind| kind.is_in(prompt)) {
            return self.too_dear(row, prompt);
        }
        let names = |kinds: &mut dyn Iterator<Item = InputKind>| {
            kinds.map(|kind| kind.to_string()).collect::<Vec<String>>().join(" or ")
        };
        let wanted = names(&mut self.input.iter().copied());
        let found = |kind: &InputKind| *kind != InputKind::Text && kind.is_in(prompt);
        let found = match names(&mut InputKind::ALL.into_iter().filter(found)) {
            nothing if nothing.is_empty() => "text alone".to_owned(),
            found => found.replace(" or ", " and "),
        };
        Some(format!("the prompt has {found}, not {wanted}"))
    }

    fn too_dear(&self, row: u32, prompt: &PromptFacts) -> Option<String> {
        let max = self.max_usd?;
        match prompt.cost(row) {
            None => Some("its model has no price".to_owned()),
            Some(most) if most > max => {
                Some(format!("the call may cost {most} USD, more than {max}"))
            }
            Some(_) => None,
        }
    }

    /// Each row of these, compared with a prompt.
    pub fn compared(routes: &[Self], prompt: &PromptFacts) -> Vec<RouteRow> {
        let row = |(row, route): (u32, &Self)| {
            let misfit = route.misfit(row, prompt);
            RouteRow { row, route: route.clone(), fits: misfit.is_none(), misfit }
        };
        (1..).zip(routes).map(row).collect()
    }
}

// === impl PromptFacts ===

impl PromptFacts {
    /// The most that the call would cost by this row, if the row has a limit and its model a price.
    pub fn cost(&self, row: u32) -> Option<MicroUsd> {
        self.costs.iter().find(|cost| cost.row == row).map(|cost| cost.most)
    }

    /// The setting of the call that the model of this row does not take.
    fn refused(&self, row: u32) -> Option<&str> {
        let refusal = self.refusals.iter().find(|refusal| refusal.row == row);
        refusal.map(|refusal| refusal.setting.as_str())
    }
}

// === impl RouteView ===

impl RouteView {
    /// Which model a prompt goes to in a session that chose none: that of these routes, else the agent's
    /// `own`, and after it those of `fallback`.
    pub fn of(
        agent: AgentName,
        own: &ModelRef,
        fallback: &[ModelRef],
        routes: &[ModelRoute],
        prompt: PromptFacts,
    ) -> Self {
        let rows = ModelRoute::compared(routes, &prompt);
        let found = rows.iter().find(|row| row.fits).map(|row| &row.route.model);
        let reason = if found.is_some() { RouteReason::Route } else { RouteReason::Agent };
        let model = found.unwrap_or(own).clone();
        let fallback = fallback.iter().filter(|other| **other != model).cloned().collect();
        Self { agent, model, reason, fallback, prompt, rows }
    }
}

// === impl RouteTaken ===

impl RouteTaken {
    /// What these routes decide about a prompt: the first row that fits.
    pub fn by(routes: &[ModelRoute], prompt: PromptFacts) -> Self {
        let mut rows = (1..).zip(routes);
        let row =
            rows.find(|(row, route)| route.misfit(*row, &prompt).is_none()).map(|(row, _)| row);
        Self { row, prompt }
    }

    /// The model of its row among these.
    pub fn model<'a>(&self, routes: &'a [ModelRoute]) -> Option<&'a ModelRef> {
        let at = usize::try_from(self.row?).ok()?.checked_sub(1)?;
        routes.get(at).map(|route| &route.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(min: Option<u64>, max: Option<u64>, input: &[InputKind]) -> ModelRoute {
        ModelRoute {
            model: "p/m".parse().unwrap(),
            min_prompt_tokens: min,
            max_prompt_tokens: max,
            input: input.to_vec(),
            max_usd: None,
        }
    }

    fn prompt(tokens: u64, media: &[MediaKind]) -> PromptFacts {
        PromptFacts { tokens, media: media.to_vec(), ..PromptFacts::default() }
    }

    #[test]
    fn a_row_fits_if_all_that_it_names_does() {
        use InputKind::{Audio, Image, Text};
        let (picture, sound) = (MediaKind::Image, MediaKind::Audio);
        for (route, prompt, misfit) in [
            (route(Some(10), None, &[]), prompt(10, &[]), None),
            (route(Some(10), None, &[]), prompt(9, &[]), Some("9 tokens, fewer than 10")),
            (route(None, Some(10), &[]), prompt(10, &[]), None),
            (route(None, Some(10), &[]), prompt(11, &[]), Some("11 tokens, more than 10")),
            (route(None, None, &[Image, Audio]), prompt(1, &[sound]), None),
            (
                route(None, None, &[Image, Audio]),
                prompt(1, &[]),
                Some("has text alone, not image or audio"),
            ),
            (route(None, None, &[Text]), prompt(1, &[]), None),
            (route(None, None, &[Text]), prompt(1, &[picture]), Some("has image, not text")),
            (route(Some(5), None, &[Image]), prompt(4, &[picture]), Some("fewer than 5")),
        ] {
            let found = route.misfit(1, &prompt);
            assert_eq!(found.is_some(), misfit.is_some(), "{route:?} {prompt:?}");
            assert!(found.unwrap_or_default().contains(misfit.unwrap_or_default()));
        }
    }

    #[test]
    fn a_row_with_a_limit_fits_calls_that_cost_no_more() {
        let cheap = ModelRoute { max_usd: Some(MicroUsd(50_000)), ..route(None, None, &[]) };
        let routes = [route(Some(10), None, &[]), cheap.clone(), cheap];
        let prompt = |costs: &[(u32, u64)]| {
            let costs =
                costs.iter().map(|(row, most)| RouteCost { row: *row, most: MicroUsd(*most) });
            PromptFacts { tokens: 1, costs: costs.collect(), ..PromptFacts::default() }
        };
        let row = |costs: &[(u32, u64)]| RouteTaken::by(&routes, prompt(costs)).row;
        assert_eq!(row(&[(2, 50_000), (3, 1)]), Some(2));
        assert_eq!(row(&[(2, 50_001), (3, 50_000)]), Some(3), "each row has its own price");
        assert_eq!(row(&[(2, 50_001), (3, 50_001)]), None);
        assert_eq!(row(&[(3, 0)]), Some(3), "what has no price does not fit");
        let why = ModelRoute::compared(&routes, &prompt(&[(3, 60_000)]));
        let why: Vec<_> = why.into_iter().filter_map(|row| row.misfit).collect();
        assert_eq!(why[1], "its model has no price");
        assert_eq!(why[2], "the call may cost 0.06 USD, more than 0.05");
        assert!(!routes[1].is_unconditional());
    }

    #[test]
    fn a_row_does_not_fit_a_call_with_a_setting_that_its_model_does_not_take() {
        let routes = [route(None, None, &[]), route(None, None, &[])];
        let refused = |rows: &[u32]| {
            let refusal = |row: &u32| RouteRefusal { row: *row, setting: "seed".to_owned() };
            PromptFacts { refusals: rows.iter().map(refusal).collect(), ..prompt(1, &[]) }
        };
        for (rows, row) in
            [(&[] as &[u32], Some(1)), (&[1], Some(2)), (&[2], Some(1)), (&[1, 2], None)]
        {
            let taken = RouteTaken::by(&routes, refused(rows));
            assert_eq!(taken.row, row, "{rows:?}");
            // What is journaled decides again.
            let json = serde_json::to_string(&taken).unwrap();
            let read: RouteTaken = serde_json::from_str(&json).unwrap();
            assert_eq!(RouteTaken::by(&routes, read.prompt), taken);
            assert_eq!(json.contains("refusals"), !rows.is_empty(), "{json}");
        }
        let why = ModelRoute::compared(&routes, &refused(&[2])).pop().unwrap();
        assert_eq!(why.misfit.as_deref(), Some("its model does not take `seed`"));
    }

    #[test]
    fn the_first_row_that_fits_decides_and_is_known_by_its_number() {
        let mut routes = vec![
            route(Some(100), None, &[]),
            route(None, None, &[InputKind::Image]),
            route(None, Some(10), &[]),
        ];
        routes[1].model = "p/sees".parse().unwrap();
        let taken = |prompt| RouteTaken::by(&routes, prompt);
        assert_eq!(taken(prompt(100, &[MediaKind::Image])).row, Some(1));
        let sees = taken(prompt(5, &[MediaKind::Image]));
        assert_eq!((sees.row, sees.model(&routes)), (Some(2), Some(&routes[1].model)));
        assert_eq!(taken(prompt(5, &[])).row, Some(3));
        let none = taken(prompt(50, &[]));
        assert_eq!((none.row, none.model(&routes)), (None, None));
        // What the journal says of a row that is gone.
        assert_eq!(RouteTaken { row: Some(4), ..none.clone() }.model(&routes), None);
        assert_eq!(RouteTaken { row: Some(0), ..none }.model(&routes), None);
        let fits = ModelRoute::compared(&routes, &prompt(5, &[MediaKind::Image]));
        let fits: Vec<_> = fits.iter().map(|fit| (fit.row, fit.fits)).collect();
        assert_eq!(fits, [(1, false), (2, true), (3, true)]);
    }
}
