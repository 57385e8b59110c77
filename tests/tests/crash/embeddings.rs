//! Embeddings for clients of a gateway that has no worker: a worker asks the provider, with its own key and
//! settings.

mod nats {
    use clawnode_proto::limits::EMBED_BATCH;
    use clawnode_tests::{
        model::{Act, ModelServer, Setup, vector},
        nats::{NatsServer, ServerOptions},
        process::{Client, Home, Node, ProcessError, Start, TestBackend},
    };
    use serde_json::{Value, json};

    use crate::support::Outcome;

    async fn embed(client: &Client, body: &Value) -> Result<(u16, Value), ProcessError> {
        let url = format!("{}/v1/embeddings", client.url());
        let request = reqwest::Client::new().post(url).bearer_auth(client.token());
        let response = request.json(body).send().await.unwrap();
        Ok((response.status().as_u16(), response.json().await.unwrap()))
    }

    #[tokio::test]
    async fn a_gateway_has_a_worker_ask_the_provider() -> Outcome {
        let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
        let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::default() };
        let server = ModelServer::start(setup).await.unwrap();
        let backend = TestBackend::Nats { url: nats.url(), prefix: "embed".to_owned() };
        let home =
            || Home::new(backend.clone()).map(|home| home.var("CLAWNODE_CLUSTER__PARTITIONS", "8"));
        let works = home()?.openai(&server).var("CLAWNODE_EMBEDDINGS__MODELS", "openai/embedder");
        let worker = Node::start(&works, Start::role("worker")).await?;
        let front = home()?;
        let gateway = Node::start(&front, Start::role("gateway")).await?;
        let client = gateway.client()?;

        let texts: Vec<String> = (0..=EMBED_BATCH).map(|n| format!("text {n}")).collect();
        let asked = json!({"model": "openai/embedder", "input": texts, "dimensions": 3});
        let (status, answer) = embed(&client, &asked).await?;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["model"], "openai/embedder");
        let data = answer["data"].as_array().unwrap();
        let expected: Vec<Value> = texts.iter().map(|text| json!(vector(text, Some(3)))).collect();
        let got: Vec<Value> = data.iter().map(|one| one["embedding"].clone()).collect();
        assert_eq!(got, expected, "in their order, over more than one request");
        assert_eq!(server.count(), 2);
        assert_eq!(answer["usage"]["total_tokens"], 2 * texts.len());

        // What the provider or the worker refuses is said as it is, and names no key.
        server.push(Act::status(401, &format!("no key {}", Home::key())));
        let (status, answer) = embed(&client, &json!({"model": "embedder", "input": "a"})).await?;
        let code = &answer["error"]["code"];
        assert_eq!((status, code), (502, &json!("provider_unauthorized")), "{answer}");
        assert!(!answer.to_string().contains(Home::key()), "{answer}");
        let (status, answer) = embed(&client, &json!({"model": "gpt", "input": "a"})).await?;
        assert_eq!((status, &answer["error"]["param"]), (404, &json!("model")), "{answer}");

        worker.stop().await?;
        let (status, answer) = embed(&client, &json!({"model": "embedder", "input": "a"})).await?;
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("unavailable")), "{answer}");
        assert_eq!(server.count(), 3);
        gateway.stop().await
    }
}
