//! The signature of a request, on wires that want one.

use super::{
    call::ProviderParts,
    http::{AttemptFailure, Prepared},
};

impl ProviderParts {
    /// The request with a signature that holds from now on; nothing if the wire wants none.
    pub(super) async fn signed(
        &self,
        prepared: &Prepared,
    ) -> Result<Option<Prepared>, AttemptFailure> {
        let now = self.http.now();
        if let Some(keys) = self.dialect.machine_keys() {
            keys.renew(now).await?;
        }
        self.dialect.signed(prepared, now)
    }
}
