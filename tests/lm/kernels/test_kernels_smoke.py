import torch, pytest, math
from torch.nn import functional as F
def test_all(device):
    from gristmill.lm.kernels import float8, rms_norm, rope, swiglu, cross_entropy, embedding, adamw
    torch.manual_seed(0)
    one=lambda v: torch.full((1,), v, device=device)
    for dt in (torch.float32, torch.bfloat16):
        x=torch.randn(13,48,device=device).to(dt); d=torch.randn(13,48,device=device).to(dt); w=torch.randn(48,device=device)
        site=float8.Site(float8.E4M3, one(8.), one(1/8), one(0.))
        n=rms_norm.add_rms_norm(x,d,w,eps=1e-5,site=site)
        s,y=rms_norm.plain_add_rms_norm(x,d,w,eps=1e-5)
        torch.testing.assert_close(n.stream_ND,s); torch.testing.assert_close(n.normed_ND,y)
        print((n.float8_ND.float()/8-y.float()).abs().max(), site.largest, y.abs().max())
        xs=s.float().clone().requires_grad_(); ws=w.clone().requires_grad_()
        _,yy=rms_norm.plain_add_rms_norm(xs,None,ws,eps=1e-5)
        g=torch.randn(13,48,device=device).to(dt); r=torch.randn(13,48,device=device).to(dt)
        gx,gw=torch.autograd.grad(yy,(xs,ws),g.float()*.5)
        a,b=rms_norm.rms_norm_gradient(g,s,w,n.factor_N,grad_stream_ND=r,scale=one(.5))
        torch.testing.assert_close(a.float(),(gx+r.float()),atol=.05 if dt==torch.bfloat16 else 1e-5,rtol=.02 if dt==torch.bfloat16 else 1e-5)
        torch.testing.assert_close(b,gw,atol=1e-4,rtol=1e-4)
        # swiglu
        gu=torch.randn(13,2*80,device=device).to(dt)
        h,h8=swiglu.swiglu(gu,site=site); torch.testing.assert_close(h,swiglu.plain_swiglu(gu))
        gl=gu.float().requires_grad_(); dh=torch.randn(13,80,device=device).to(dt)
        ref,=torch.autograd.grad(swiglu.plain_swiglu(gl),gl,dh.float())
        o=swiglu.swiglu_gradient(gu,dh,recomputes=True); torch.testing.assert_close(o.gate_up_NF,ref.to(dt)); torch.testing.assert_close(o.product_NF,h)
        # rope
        from gristmill.lm.kernels.rope import Heads
        for norm in (False,True):
            T,B,K=7,3,16; H,G=4,2
            ang=torch.rand(T,K//2,device=device)
            hd=Heads(H,G,K,ang.cos(),ang.sin(),1e-5)
            qkv=torch.randn(B*T,hd.width,device=device).to(dt)
            nk=(torch.randn(K,device=device),torch.randn(K,device=device)) if norm else None
            pq=rope.plain_rotated(qkv,hd,num_tokens=T,norm_K2=nk)
            leaf=qkv.float().requires_grad_(); nl=tuple(t.clone().requires_grad_() for t in nk) if norm else None
            grads=[torch.randn_like(t) for t in pq]
            ref=torch.autograd.grad(rope.plain_rotated(leaf,hd,num_tokens=T,norm_K2=nl),[leaf,*(nl or ())],[g.float() for g in grads])
            kept=qkv.clone()
            got=rope.rotated(qkv,hd,num_tokens=T,norm_K2=nk)
            for a,b in zip(got,pq): torch.testing.assert_close(a,b)
            back=rope.rotation_gradient(tuple(g.transpose(1,2).contiguous().transpose(1,2) for g in grads),hd,normed=(kept,*nk) if norm else None, site=site)
            torch.testing.assert_close(back.qkv_NA,ref[0].to(dt),atol=1e-2 if dt==torch.bfloat16 else 1e-5,rtol=1e-2 if dt==torch.bfloat16 else 1e-5)
            if norm:
                for a,b in zip(back.norm_K2,ref[1:]): torch.testing.assert_close(a,b,atol=1e-4,rtol=1e-4)
        # ce
        for V,W in ((40,128),(4100,4224),(9000,9088)):
            lg=(torch.randn(6,W,device=device)*3).to(dt); lg[2,V-1]=300
            t=torch.randint(V,(6,),device=device); t[1]=-100
            ls,gr=cross_entropy.plain_cross_entropy(lg,t,vocab_size=V,factor=2.)
            out=torch.empty(6,device=device); 
            g5=torch.empty(6,W,device=device,dtype=torch.float8_e5m2)
            cross_entropy.cross_entropy(lg,t,out,vocab_size=V,grad_CV=g5,factor=32768.)
            cross_entropy.cross_entropy(lg,t,out,vocab_size=V,grad_CV=lg,factor=2.)
            torch.testing.assert_close(out,ls,atol=1e-4,rtol=1e-5); torch.testing.assert_close(lg.float(),gr,atol=1e-2 if dt==torch.bfloat16 else 1e-5,rtol=1e-2)
            torch.testing.assert_close(g5.float()/32768,gr/2,atol=1e-3,rtol=.13)
        ids=torch.randint(5,(13,),device=device); acc=torch.randn(9,48,device=device)
        ref=acc+embedding.plain_embedding_gradient(x,ids,9)
        torch.testing.assert_close(embedding.add_embedding_gradient(acc,x,ids,is_deterministic=False),ref,atol=1e-4,rtol=1e-4)
        q,qt=float8.quantized(x,site,columns=True); p=float8.plain_float8(x,site)
        assert torch.equal(q.view(torch.uint8),p.view(torch.uint8)); assert torch.equal(qt.view(torch.uint8),p.view(torch.uint8).t())
        assert torch.equal(float8.transposed(q).view(torch.uint8),p.view(torch.uint8).t())
    ws=[torch.randn(n,device=device) for n in (5000,7,4096)]; ms=[(torch.randn_like(w)*.1,torch.rand_like(w)) for w in ws]
    cs=[w.bfloat16() for w in ws[:2]]+[None]; gs=[torch.randn_like(w) for w in ws]
    refs=[(w.clone(),(m[0].clone(),m[1].clone())) for w,m in zip(ws,ms)]
    from gristmill.lm.kernels.tables import TensorTable
    tb=TensorTable([ws,gs,[m[0] for m in ms],[m[1] for m in ms],cs])
    adamw.adamw(tb,torch.full((3,),4.,device=device),lr=1e-2,betas=(.9,.95),eps=1e-8,weight_decay=.1,clip=one(.5),skip=one(0.))
    for w,m,c,g,(rw,rm),wd in zip(ws,ms,cs,gs,refs,(.1,.1,.1)):
        adamw.plain_adamw(rw,g,rm,step=4,lr=1e-2,betas=(.9,.95),eps=1e-8,weight_decay=wd,clip=.5)
        torch.testing.assert_close(w,rw); torch.testing.assert_close(m,rm)
        if c is not None: torch.testing.assert_close(c,rw.bfloat16())
