// One call per case, each of which fails. Input: [{fields, client}]

import { chunksOf, connect, failure, input, say, tell } from "./client.mjs";

const failures = [];
for (const { fields = {}, client = {} } of input) {
  const answer = connect(client).chat.completions.create({ model: "auto", messages: say(), ...fields });
  failures.push(await failure(fields.stream ? answer.then(chunksOf) : answer));
}
tell(failures);
