// Sends one request several times with Node's fetch, and prints the answers.
//
// Arguments: URL KEY FRAMING PADDING TIMES BODY; PADDING: a number of spaces after the body. Each
// answer is printed as a line with "= " and the status or the error's code, then its body.

const [url, key, framing, padding, times, text] = process.argv.slice(2);
const bytes = new TextEncoder().encode(text + " ".repeat(Number(padding)));

function body() {
  if (framing === "none") return undefined;
  if (framing === "length") return bytes;
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(at, (at += 65536)));
    },
  });
}

for (let n = Number(times); n > 0; n--) {
  try {
    const answer = await fetch(url, {
      method: framing === "none" ? "GET" : "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: body(),
      duplex: "half",
      signal: AbortSignal.timeout(10000),
    });
    console.log(`= ${answer.status}`);
    const decoder = new TextDecoder();
    for await (const piece of answer.body) process.stdout.write(decoder.decode(piece, { stream: true }));
    process.stdout.write("\n");
  } catch (error) {
    console.log(`= ${error.cause?.code ?? error}`);
  }
}
