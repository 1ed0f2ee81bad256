// Lets search work when the site is opened from the disk. Browsers refuse to start a worker from a file: address, so
// the script of the worker runs in a hidden iframe instead. The `offline` plugin looks for "iframe-worker" in the name
// of this file; without it, the plugin would add a script from another host.
if (location.protocol === "file:") {
  const addScript = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script")
      script.src = url
      script.onload = resolve
      script.onerror = () => reject(new Error(`cannot load ${url}`))
      page.head.append(script)
    })

  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html><title>worker</title>"
      const address = new URL(url, location.href)
      const start = () => {
        const inside = this.frame.contentWindow
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
        inside.importScripts = async (...urls) => {
          for (const each of urls) await addScript(inside.document, new URL(each, address))
        }
        return addScript(inside.document, address)
      }
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true })).then(start)
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow
        inside.dispatchEvent(new inside.MessageEvent("message", { data }))
      })
    }

    terminate() {
      this.frame.remove()
    }
  }
}

// A query such as --val-fraction finds the option; to the search engine, a leading minus excludes the word.
const post = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...rest) {
  if (typeof message?.data === "string") message = { ...message, data: message.data.replace(/(^|\s)--?(?=\w)/g, "$1") }
  return post.call(this, message, ...rest)
}
