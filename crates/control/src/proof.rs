//! Asking the API server what it thinks of an object, by a dry run. What the answer means is decided in
//! [`dapple_plan::proof`].

use dapple_plan::proof::Answer;
use serde_json::Value;

use crate::env::Env;
use crate::writes::client::is_not_leading;
use crate::writes::outcome::Writer;

/// Asks whether an object would be taken. An error if this process does not lead any more.
pub async fn ask(writer: &Writer, object: &Value, env: &Env) -> Result<Answer, kube::Error> {
    let (code, text) = match writer.try_create(object).await {
        Ok(()) => return Ok(Answer::Taken),
        Err(error) if is_not_leading(&error) => return Err(error),
        Err(kube::Error::Api(error)) => (Some(error.code), error.message),
        Err(error) => (None, error.to_string()),
    };
    Ok(Answer::of_failure(code, text, env.now().as_second()))
}
