//! Budgets: accounts with their limits, and what accounts and the processes that spend say to each
//! other.
//!
//! An **account** is an entity of the kind `budget`. It has limits and gives processes **slices** of
//! the rest of them. The **holder** of a process lets its calls reserve from slices in memory.

mod account;
mod event;
mod hold;
mod input;
mod limit;
mod show;
mod spend;
mod texts;
mod view;
mod window;

pub use account::AccountKey;
pub use event::{
    BudgetAllowed, BudgetAsked, BudgetEvent, BudgetGranted, BudgetOver, BudgetSet, BudgetWarned,
    WindowBegun,
};
pub use hold::{BudgetHeld, Hold};
pub use input::{
    AskAnswer, AskVerdict, BudgetInput, GrantedSlice, LimitSource, ProcessStanding, SliceAsk,
    SliceReport,
};
pub use limit::{
    AMOUNT_MOST, ASK_AT, BudgetLimit, BudgetUnit, CountedLanes, LIMITS_MOST, LimitError, LimitKey,
    WARN_AT, check_limits,
};
pub use show::{
    AccountChange, AccountView, AskingBudget, BudgetAllowParams, BudgetExplainView, BudgetList,
    BudgetParams, BudgetReconcileParams, BudgetSetParams, CallForecast, ChangeKind, ClosedSlice,
    ExplainedLimit, LimitOrigin, LimitState, LimitView, ReconcileView, SliceHolderView,
    WantedLimit,
};
pub use spend::{SpendLimits, SpentLimit};
pub use texts::{
    AmountError, allow_command, amount_text, exceeded, limit_flag, raise_command, read_amount,
    reconcile_command,
};
pub use view::{AccountVersion, BudgetView};
pub use window::{WindowError, WindowLength, WindowNumber};
