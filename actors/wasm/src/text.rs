//! Plugins in text, for tests: a component of the world `tool` around a few lines of WebAssembly.
//! Compiled for tests only.

/// What differs from plugin to plugin.
#[derive(Clone, Copy, Debug)]
pub struct PluginText<'a> {
    /// What `handle-tool-call` does: six parameters (`$tool $tool_len $args $args_len $key
    /// $key_len`), and the address of the result.
    pub call: &'a str,
    /// What `describe` does before it answers.
    pub describe: &'a str,
    /// Definitions beside them.
    pub more: &'a str,
    /// What `realloc` does before it answers.
    pub realloc: &'a str,
    /// What is done after a result was taken, if anything is.
    pub post: Option<&'a str>,
    /// Whether it imports `http`.
    pub http: bool,
    /// Whether it imports `store`.
    pub store: bool,
    /// The tool's name.
    pub name: &'a str,
    /// The schema of its arguments.
    pub schema: &'a str,
    /// Its class: 0 safe, 1 idempotent, 2 once.
    pub class: u8,
    /// Its risk: 0 read-only, 1 write, 2 admin.
    pub risk: u8,
    /// The name of a second tool: safe and read-only, with the same arguments.
    pub second: Option<&'a str>,
}

impl Default for PluginText<'_> {
    fn default() -> Self {
        Self {
            call: ECHO,
            describe: "",
            more: "",
            realloc: "",
            post: None,
            http: false,
            store: false,
            name: "run",
            schema: r#"{"type":"object"}"#,
            class: 0,
            risk: 0,
            second: None,
        }
    }
}

/// Returns the arguments.
pub const ECHO: &str = "(call $ok (local.get $args) (local.get $args_len))";

/// The interface `types`.
const TYPES: &str = r#"
  (import "clawnode:plugin/types@0.1.0" (instance $types
    (type $class' (enum "safe" "idempotent" "once"))
    (export "effect-class" (type $class (eq $class')))
    (type $risk' (enum "read-only" "write" "admin"))
    (export "risk" (type $risk (eq $risk')))
    (type $spec' (record (field "name" string) (field "description" string)
      (field "input-schema" string) (field "class" $class) (field "risk" $risk)))
    (export "tool-spec" (type (eq $spec')))
    (type $call' (record (field "tool" string) (field "arguments" string)
      (field "idempotency-key" string)))
    (export "call" (type (eq $call')))))
  (alias export $types "tool-spec" (type $spec))
  (alias export $types "call" (type $call))"#;

/// The interface `http`.
const HTTP: &str = r#"
  (import "clawnode:plugin/http@0.1.0" (instance $http
    (type $method' (enum "get" "head"))
    (export "method" (type $method (eq $method')))
    (type $request' (record (field "method" $method) (field "url" string)
      (field "headers" (list (tuple string string)))))
    (export "request" (type $request (eq $request')))
    (type $response' (record (field "status" u16) (field "headers" (list (tuple string string)))
      (field "body" (list u8)) (field "is-cut" bool)))
    (export "response" (type $response (eq $response')))
    (export "fetch" (func (param "request" $request) (result (result $response (error string)))))))
  (core func $fetch (canon lower (func $http "fetch")
    (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
  (core instance $host (export "fetch" (func $fetch)))"#;

/// The interface `store`.
const STORE: &str = r#"
  (import "clawnode:plugin/store@0.1.0" (instance $store
    (type $error' (variant (case "denied" string) (case "invalid" string) (case "conflict")
      (case "full") (case "exhausted") (case "unavailable" string)))
    (export "store-error" (type $error (eq $error')))
    (type $entry' (record (field "value" (list u8)) (field "revision" u64)))
    (export "entry" (type $entry (eq $entry')))
    (export "get" (func (param "store" string) (param "key" string)
      (result (result (option $entry) (error $error)))))
    (export "put" (func (param "store" string) (param "key" string) (param "value" (list u8))
      (param "expected" (option u64)) (result (result u64 (error $error)))))
    (export "delete" (func (param "store" string) (param "key" string)
      (param "expected" (option u64)) (result (result (error $error)))))
    (export "keys" (func (param "store" string) (result (result (list string) (error $error)))))))
  (core func $get (canon lower (func $store "get")
    (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
  (core func $set (canon lower (func $store "put")
    (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
  (core instance $kept (export "get" (func $get)) (export "put" (func $set)))"#;

impl PluginText<'_> {
    /// The component in text.
    pub fn wat(&self) -> String {
        let Self { call, describe, more, realloc, name, schema, class, risk, .. } = *self;
        let (import, with, interfaces) = self.imports();
        let (post, after) = match self.post {
            Some(post) => (
                format!("(func (export \"post\") (param i32) {post})"),
                "(post-return (core func $main \"post\"))",
            ),
            None => (String::new(), ""),
        };
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let (name_len, schema_len) = (name.len(), schema.len());
        let (name, schema) = (escaped(name), escaped(schema));
        let (second, tools) = (self.describe_second(), 1 + usize::from(self.second.is_some()));
        format!(
            r#"(component {TYPES}
  (core module $libc
    (memory (export "memory") 2)
    (global $heap (mut i32) (i32.const 65536))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      {realloc}
      (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
      (global.set $heap (i32.add (local.get $at) (local.get 3)))
      (block $fits (loop $more
        (br_if $fits (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
        (br $more)))
      (local.get $at)))
  (core instance $libc (instantiate $libc))
  {interfaces}
  (core module $main
    (import "libc" "memory" (memory 2))
    {import}
    (data (i32.const 1024) "{name}")
    (data (i32.const 1536) "{}")
    (data (i32.const 2048) "says what it was sent")
    (data (i32.const 4096) "{schema}")
    {more}
    (func $put (param i32 i32) (i32.store (local.get 0) (local.get 1)))
    (func $ok (param i32 i32) (result i32)
      (call $put (i32.const 512) (i32.const 0))
      (call $put (i32.const 516) (local.get 0)) (call $put (i32.const 520) (local.get 1))
      (i32.const 512))
    (func $err (param i32 i32) (result i32)
      (drop (call $ok (local.get 0) (local.get 1)))
      (call $put (i32.const 512) (i32.const 1)) (i32.const 512))
    (func (export "describe") (result i32)
      {describe}
      (call $put (i32.const 256) (i32.const 1024)) (call $put (i32.const 260) (i32.const {name_len}))
      (call $put (i32.const 264) (i32.const 2048)) (call $put (i32.const 268) (i32.const 21))
      (call $put (i32.const 272) (i32.const 4096)) (call $put (i32.const 276) (i32.const {schema_len}))
      (i32.store8 (i32.const 280) (i32.const {class})) (i32.store8 (i32.const 281) (i32.const {risk}))
      {second}
      (call $put (i32.const 240) (i32.const 256)) (call $put (i32.const 244) (i32.const {tools}))
      (i32.const 240))
    {post}
    (func (export "call") (param $tool i32) (param $tool_len i32) (param $args i32)
      (param $args_len i32) (param $key i32) (param $key_len i32) (result i32)
      (local $n i32)
      {call}))
  (core instance $main (instantiate $main (with "libc" (instance $libc)) {with}))
  (func (export "describe") (result (list $spec)) (canon lift (core func $main "describe")
    (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
  (func (export "handle-tool-call") (param "call" $call) (result (result string (error string)))
    (canon lift (core func $main "call") (memory (core memory $libc "memory"))
      (realloc (core func $libc "realloc")) {after})))"#,
            escaped(self.second.unwrap_or_default())
        )
    }

    /// Writes the record of the second tool behind that of the first.
    fn describe_second(&self) -> String {
        let (name_len, schema_len) = (self.second.map_or(0, str::len), self.schema.len());
        let words =
            [(284, 1536), (288, name_len), (292, 2048), (296, 21), (300, 4096), (304, schema_len)];
        let put = |(at, word)| format!("(call $put (i32.const {at}) (i32.const {word}))");
        words.map(put).concat()
    }

    /// What the module imports of its host, where that comes from, and the interfaces behind it.
    fn imports(&self) -> (String, String, String) {
        let http = r#"(import "host" "fetch" (func $fetch (param i32 i32 i32 i32 i32 i32)))"#;
        let store = r#"(import "kept" "get" (func $get (param i32 i32 i32 i32 i32)))
            (import "kept" "put" (func $set (param i32 i32 i32 i32 i32 i32 i32 i64 i32)))"#;
        let all = [
            (self.http, http, r#"(with "host" (instance $host))"#, HTTP),
            (self.store, store, r#"(with "kept" (instance $kept))"#, STORE),
        ];
        let mut texts = (String::new(), String::new(), String::new());
        for (_, import, with, interface) in all.iter().filter(|(is_wanted, ..)| *is_wanted) {
            texts.0.push_str(import);
            texts.1.push_str(with);
            texts.2.push_str(interface);
        }
        texts
    }

    /// The component's bytes.
    pub fn bytes(&self) -> Result<Vec<u8>, wat::Error> {
        wat::parse_str(self.wat())
    }
}
