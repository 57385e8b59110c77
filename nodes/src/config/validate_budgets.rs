//! What is wrong with limits of spending.

use clawnode_proto::{AgentName, budget::check_limits};

use super::{
    agents::DEFAULT_AGENT,
    budgets::LimitsSection,
    error::{ConfigError, nearest},
    validate::Checks,
};

impl Checks<'_> {
    /// Refuses the first limit that cannot be.
    pub(super) fn budgets(&self) -> Result<(), ConfigError> {
        let budgets = &self.config.budgets;
        self.some_time(&["budgets", "patience"], budgets.patience)?;
        self.some_time(&["budgets", "ask_wait"], budgets.ask_wait)?;
        self.budget(&["budgets", "cluster"], budgets.cluster.as_ref())?;
        self.budget(&["budgets", "users"], budgets.users.as_ref())?;
        for (name, limits) in &budgets.agents {
            let name = name.as_str();
            let known = self.config.agents.keys().map(AgentName::as_str);
            let mut known = known.chain([DEFAULT_AGENT]);
            if known.clone().all(|agent| agent != name) {
                let near = nearest(name, &mut known);
                let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
                let hint = format!("{meant}add `[agents.{name}]`, or correct the name");
                let what = format!("no agent is called `{name}`");
                return self.fail(&["budgets", "agents", name], what, &hint);
            }
            self.budget(&["budgets", "agents", name], Some(limits))?;
        }
        Ok(())
    }

    fn budget(&self, path: &[&str], section: Option<&LimitsSection>) -> Result<(), ConfigError> {
        let Some(section) = section else { return Ok(()) };
        let limits = section.limits();
        if limits.is_empty() {
            let hint = "add one such as `usd_per_day = \"5.00\"`, or remove the section";
            return self.fail(path, "there is no limit here", hint);
        }
        match check_limits(&limits) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(path, error.to_string(), "correct it, or remove the limit"),
        }
    }
}
